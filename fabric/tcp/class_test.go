//go:build linux

package tcp

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/fabric"
)

func TestParseCongestion(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]Congestion{
		"":                               {},
		"auto":                           {},
		"cubic":                          {"cubic", "cubic", "cubic"},
		"long=bbr":                       {ClassLong: "bbr"},
		"reno, long=bbr":                 {"reno", "reno", "bbr"},
		"host=kernel,near=cubic":         {ClassHost: "kernel", ClassNear: "cubic"},
		"dctcp,host=auto,long=tcp_highs": {"", "dctcp", "tcp_highs"},
	} {
		c, err := ParseCongestion(in)
		require.NoError(t, err, in)
		require.Equal(t, want, c, in)
	}
	for _, in := range []string{",", "host=", "=reno", "far=reno", "Reno", "re no", "a-name-of-16-byte", "host=reno;near=bbr"} {
		_, err := ParseCongestion(in)
		require.ErrorIs(t, err, errCongestionList, in)
	}
}

func TestClassify(t *testing.T) {
	t.Parallel()
	a, b := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	lo, lo6 := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1")
	for _, c := range []struct {
		local, remote netip.Addr
		rtt           time.Duration
		want          Class
	}{
		{lo, lo, 30 * time.Microsecond, ClassHost},
		{lo, lo, time.Second, ClassHost}, // a busy host is no long path
		{lo6, lo6, 0, ClassHost},
		{a, netip.AddrFrom16(a.As16()), 0, ClassHost},
		{a, b, 0, ClassNear},
		{a, b, time.Millisecond, ClassNear},
		{a, b, time.Millisecond + 1, ClassLong},
		{netip.Addr{}, netip.Addr{}, 0, ClassNear},
	} {
		require.Equal(t, c.want, classify(c.local, c.remote, c.rtt, DefaultLongRTT), "%v", c)
	}
	require.Equal(t, []string{"host", "near", "long", "class(3)"},
		[]string{ClassHost.String(), ClassNear.String(), ClassLong.String(), numClasses.String()})
}

func TestCongestionLeftToTheLink(t *testing.T) {
	t.Parallel()
	k := KernelCongestion
	offer := []string{"cubic", "reno", "bbr"}
	require.Equal(t, Congestion{"reno", k, k}, Congestion{}.resolve("bbr", offer))
	require.Equal(t, Congestion{k, k, k}, Congestion{}.resolve("cubic", offer))
	require.Equal(t, Congestion{k, k, k}, Congestion{}.resolve("bbr", []string{"bbr"}), "nothing better on offer")
	require.Equal(t, Congestion{"bbr", k, "cubic"}, Congestion{ClassHost: "bbr", ClassLong: "cubic"}.resolve("bbr", offer), "what is asked for stays")
}

func TestCongestionRefused(t *testing.T) {
	t.Parallel()
	_, err := Open(&Config{Congestion: Congestion{ClassLong: "none_such"}})
	var ce *CongestionError
	require.ErrorAs(t, err, &ce)
	require.Equal(t, "none_such", ce.Name)
	require.Contains(t, ce.Offered, "reno", "every kernel has it")
	require.ErrorIs(t, err, fabric.ErrNotSupported)
	require.True(t, errors.Is(err, unix.ENOENT), "%v", err)
	require.ErrorContains(t, err, "reno")
}

// What a connection is set up with, as the kernel tells it.
func TestSocketOptions(t *testing.T) {
	t.Parallel()
	a, b := pair(t, Config{Congestion: Congestion{ClassHost: "reno", ClassNear: KernelCongestion}, Unsent: 64 << 10}, 4096)
	for _, h := range []*host{a, b} {
		get := func(level, opt int) int {
			n, err := unix.GetsockoptInt(h.ep.sock.fd, level, opt)
			require.NoError(t, err)
			return n
		}
		require.Equal(t, ClassHost, h.ep.path.class)
		require.Equal(t, fabric.Distance{Class: "host", RTT: h.ep.path.rtt}, h.ep.Distance())
		require.Equal(t, "reno", h.ep.path.congestion)
		require.Positive(t, h.ep.path.rtt)
		require.Positive(t, h.ep.path.mss)
		require.Equal(t, unix.IPPROTO_TCP, get(unix.SOL_SOCKET, unix.SO_PROTOCOL), "not multipath TCP")
		require.NotZero(t, get(unix.IPPROTO_TCP, unix.TCP_NODELAY))
		require.Equal(t, 64<<10, get(unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT))
	}
}
