package wireup

import (
	"context"
	"net"
	"net/netip"
	"time"
)

// failedLinger bounds how long a rank that runs the wire-up server stays for others that
// have joined when the job ends with an error: long enough for them to be notified.
const failedLinger = 500 * time.Millisecond

// serve runs the server of the job inside this rank: rank 0 of a job without a launcher,
// and jobs of one.
func (j *Job) serve(ctx context.Context) (*opener, error) {
	srv, err := newServer(ServerConfig{
		Size: j.cfg.Size, Token: j.cfg.Token, TLS: j.cfg.TLS, Insecure: j.cfg.Insecure, TokenHint: j.cfg.TokenHint, Log: j.cfg.Log,
	})
	if err != nil {
		return nil, err // the caller closes the listener
	}
	if j.cfg.Listener != nil {
		if err := srv.listen(j.cfg.Listener); err != nil {
			return nil, err
		}
	}
	here, there := net.Pipe()
	srv.serveConn(there, there)
	in, err := j.handshake(ctx, here)
	if err != nil {
		here.Close()
		srv.Close()
		return nil, err
	}
	j.own, j.conn = srv, here
	return in, nil
}

// Serves reports whether the wire-up server of a job of several ranks runs
// inside this one.
func (j *Job) Serves() bool { return j.own != nil && j.cfg.Size > 1 }

// endOwn ends the server when the other ranks, which may still need it, have left. Every
// call of Close calls it after this rank has left.
func (j *Job) endOwn() {
	j.ownOnce.Do(func() {
		linger, left := j.cfg.Timeout, j.own.Finished()
		if j.own.Err() != nil {
			linger, left = j.linger, j.own.deserted()
		}
		var late <-chan time.Time
		if linger > 0 {
			t := time.NewTimer(linger)
			defer t.Stop()
			late = t.C
		}
		if j.Serves() {
			select {
			case <-left:
			case <-late:
			}
		}
		j.own.Close()
	})
}

// LocalAddr returns the address of this host that is used to reach the job's server, or at
// which this rank serves: other hosts of the job can reach it. The zero value means that it
// is unknown, or that other hosts cannot reach it.
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
