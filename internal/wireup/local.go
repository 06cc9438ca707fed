package wireup

import (
	"net"
	"net/netip"
)

// LocalAddr is the address of this host by which the job's server is reached, or at which
// this rank serves: other hosts of the job know the way to it. The zero value
// stands for one that is not known, or that other hosts do not reach.
func (j *Job) LocalAddr() netip.Addr {
	var a net.Addr
	switch {
	case j.own == nil:
		a = j.conn.LocalAddr()
	case j.cfg.Listener != nil:
		a = j.cfg.Listener.Addr()
	}
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	if ip := t.AddrPort().Addr().Unmap(); ip.IsGlobalUnicast() && ip.Zone() == "" {
		return ip
	}
	return netip.Addr{}
}
