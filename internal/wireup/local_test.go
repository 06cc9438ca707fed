package wireup

import (
	"context"
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

// hostAddr is an address of this host that others reach.
func hostAddr(t *testing.T) netip.Addr {
	as, err := net.InterfaceAddrs()
	require.NoError(t, err)
	for _, a := range as {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && n.IP.IsGlobalUnicast() {
			ip, _ := netip.AddrFromSlice(n.IP.To4())
			return ip
		}
	}
	t.Skip("this host has no address but loopback")
	return netip.Addr{}
}

// Ranks know the address by which the server is reached, where it is one for others.
func TestLocalAddr(t *testing.T) {
	t.Parallel()
	js := ownJob(t, 2, nil)
	for _, j := range js {
		require.False(t, j.LocalAddr().IsValid(), "loopback")
	}
	require.NoError(t, each(js, (*Job).Close))
	want := hostAddr(t)
	ln, err := net.Listen("tcp", netip.AddrPortFrom(want, 0).String())
	require.NoError(t, err)
	js = ownJob(t, 2, func(c *Config) {
		c.Root = ln.Addr().String()
		if c.Rank == 0 {
			c.Prepare = func(_ context.Context, c *Config) error { c.Listener = ln; return nil }
		}
	})
	for _, j := range js {
		require.Equal(t, want, j.LocalAddr())
	}
	require.NoError(t, each(js, (*Job).Close))
}
