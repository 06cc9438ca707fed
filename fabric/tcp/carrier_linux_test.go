package tcp

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/testutil"
)

// Two hosts with two networks each. The child binds to its first argument and has the second as a
// path. It polls, and posts writes one after the other, until it reads a line. It says when a write is complete behind a loss, and at the end how many
// connections were lost and the longest time in µs between two completions, and for how long it has not
// run at most. Then it says when a network comes up, if its third argument is "hears".
var railChild = testutil.NewChild("rails", func(args []string, in *bufio.Reader, out io.Writer) error {
	cfg := Config{Bind: netip.MustParseAddr(args[0]), Resume: true, Paths: []netip.Addr{netip.MustParseAddr(args[1])}}
	l, err := Open(&cfg)
	if err != nil {
		return err
	}
	defer l.Close()
	reg, err := l.Alloc(4096, fabric.AccessAll)
	if err != nil {
		return err
	}
	defer reg.Close()
	ep, err := l.NewEndpoint(fabric.EndpointOptions{PeerTimeout: testutil.Limit})
	if err != nil {
		return err
	}
	theirs, key, err := swap(in, out, ep.Address(), reg.Key())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), testutil.Limit)
	defer cancel()
	if err := ep.Connect(ctx, theirs); err != nil {
		return err
	}
	told := make(chan struct{})
	go func() { _, _ = in.ReadString('\n'); close(told) }()
	var cs [16]fabric.Completion
	var sp cpu.Spinner
	wr := []fabric.WR{{Op: fabric.OpWrite, Flags: fabric.FlagSignaled, RemoteAddr: key.Addr, RKey: key.RKey, Local: []fabric.SGE{{Addr: reg.Addr(), Len: 8, LKey: reg.LKey()}}}}
	var worst, stalled time.Duration
	last, ran, open, back := time.Now(), time.Now(), false, false
	for first := true; ; {
		if !open {
			n, err := ep.Post(wr)
			if err != nil {
				return err
			}
			open = n > 0
		}
		now := time.Now()
		stalled, ran = max(stalled, now.Sub(ran)), now
		for _, c := range cs[:l.Poll(cs[:])] {
			switch {
			case c.Status != fabric.StatusOK:
				return fmt.Errorf("%+v: %w", c, ep.Err())
			case c.Op == fabric.OpWrite:
				now := time.Now()
				worst, last, open = max(worst, now.Sub(last)), now, false
				sp.Reset()
				if n, _ := ep.(*endpoint).Outages(); n > 0 && !back {
					back = true
					fmt.Fprintln(out, "back")
				} else if first {
					first = false
					fmt.Fprintln(out, "up")
				}
			}
		}
		sp.Wait()
		select {
		case <-told:
			up := l.(fabric.Networked).NetworkUp()
			n, _ := ep.(*endpoint).Outages()
			fmt.Fprintln(out, n, worst.Microseconds(), stalled.Microseconds())
			if args[2] == "hears" {
				select {
				case <-up:
					fmt.Fprintln(out, "network up")
				case <-ctx.Done():
				}
			}
			_, _ = in.ReadString('\n') // the other one needs it until then
			return nil
		default:
		}
	}
})

// An interface that goes down costs no PeerTimeout, and no operation: they go on over the other network.
func TestInterfaceDown(t *testing.T) {
	do := testutil.TwoHosts(t)
	var tid int
	do[1](func() { tid = unix.Gettid() })
	testutil.IP(t, do[0], "link", "add", "wire2", "type", "veth", "peer", "name", "wire2", "netns", fmt.Sprint(tid))
	var ps [2]*testutil.Proc
	for i, hears := range []string{"hears", ""} { // the kernel tells the other host once a second at most
		testutil.IP(t, do[i], "addr", "add", fmt.Sprintf("198.51.100.%d/24", i+1), "dev", "wire2")
		testutil.IP(t, do[i], "link", "set", "wire2", "up")
		do[i](func() {
			ps[i] = railChild.Start(t, fmt.Sprintf("192.0.2.%d", i+1), fmt.Sprintf("198.51.100.%d", i+1), hears)
		})
	}
	lines := [2]string{ps[0].Line(t, testutil.Limit), ps[1].Line(t, testutil.Limit)}
	for i, p := range ps {
		fmt.Fprintln(p.In, lines[1-i])
	}
	for _, p := range ps {
		require.Equal(t, "up", p.Line(t, testutil.Limit))
	}
	testutil.IP(t, do[0], "link", "set", "wire", "down")
	for _, p := range ps {
		require.Equal(t, "back", p.Line(t, testutil.Limit))
	}
	for _, p := range ps {
		fmt.Fprintln(p.In)
	}
	for _, p := range ps {
		var lost, worst, stalled int
		_, err := fmt.Sscan(p.Line(t, testutil.Limit), &lost, &worst, &stalled)
		require.NoError(t, err)
		t.Logf("%d connections lost, no completion for %d µs, the process did not run for %d µs", lost, worst, stalled)
		require.Positive(t, lost)
	}
	testutil.IP(t, do[0], "link", "set", "wire", "up")
	require.Equal(t, "network up", ps[0].Line(t, testutil.Limit))
	for _, p := range ps {
		fmt.Fprintln(p.In)
	}
}

// Connections from addresses of other interfaces stay.
func TestDeadAddresses(t *testing.T) {
	a, b := patient(t)
	here, ok := localOf(a.ep.sock.fd)
	require.True(t, ok)
	live, err := liveAddrs()
	require.NoError(t, err)
	require.True(t, live[netip.MustParseAddr("127.0.0.1")])
	lost := func() uint64 { n, _ := a.ep.Outages(); return n }
	giveUpDead(a.l, live)
	giveUpDead(a.l, map[netip.Addr]bool{here: true})
	write(t, a, b, 8)
	require.Zero(t, lost())
	giveUpDead(a.l, map[netip.Addr]bool{})
	until(t, "the loss", func() bool { return lost() > 0 }, a)
	write(t, a, b, 8)

	c, d := newHost(t, Config{}, never, 4096), newHost(t, Config{}, never, 4096)
	join(t, c, d)
	giveUpDead(c.l, map[netip.Addr]bool{})
	write(t, c, d, 8) // it has no other way

	rail := Config{Rail: true}
	f, g := newHost(t, rail, never, 4096), newHost(t, rail, never, 4096)
	join(t, f, g)
	write(t, f, g, 8)
	giveUpDead(f.l, live)
	write(t, f, g, 8)
	giveUpDead(f.l, map[netip.Addr]bool{})
	until(t, "the end", func() bool { return f.ep.Err() != nil }, f)
	require.ErrorIs(t, f.ep.Err(), fabric.ErrPeerGone)
}

// An endpoint that reads only its lane, because the next request waits for a large write, detects the
// end as well.
func TestGivenUpBehindALargeWrite(t *testing.T) {
	const size = 16 << 20
	a, b := pair(t, Config{Rail: true, Lanes: 1}, size)
	for _, h := range []*host{a, b} {
		to := a.reg.Key()
		if h == a {
			to = b.reg.Key()
		}
		h.post(h.write(0, size, to, fabric.FlagSignaled), h.write(0, 8, to, fabric.FlagSignaled))
	}
	until(t, "both to wait for payload", func() bool { return a.ep.in.held && b.ep.in.held }, a, b)
	require.False(t, b.ep.lanes.idle())
	giveUpDead(a.l, map[netip.Addr]bool{})
	until(t, "the end", func() bool { return a.ep.state.Load() == epDown }, a)
	require.ErrorIs(t, a.ep.Err(), fabric.ErrPeerGone)
	require.ErrorContains(t, a.ep.Err(), "interface")
}

// A host that accepts a connection and then says nothing does not hold up a connection that is made again.
func TestHandshakesThatStop(t *testing.T) {
	dials, waits := patient(t)
	silent := netip.MustParseAddr("127.0.0.3")
	ln, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(silent, waits.l.port)))
	require.NoError(t, err)
	defer ln.Close()
	dials.ep.peer.hosts = append([]netip.Addr{silent}, dials.ep.peer.hosts...)
	require.Equal(t, 1, cut(dials.l, rand.New(rand.NewPCG(1, 1))))
	write(t, dials, waits, 8)
}

// A change of the networks ends what waits for an answer, except for a handshake that is not repeated.
func TestDialAgain(t *testing.T) {
	dials, waits := patient(t)
	ln, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr("127.0.0.3"), waits.l.port)))
	require.NoError(t, err)
	defer ln.Close()
	to := dials.ep.peer
	to.hosts = []netip.Addr{netip.MustParseAddr("127.0.0.3")}
	ended := make(chan error, 1)
	ctx := testutil.Context(t, testutil.Limit)
	begin := func(attempt uint32) net.Conn {
		go func() {
			dial := dials.ep.dialFirst
			if attempt == firstAttempt {
				dial = dials.ep.dialHosts
			}
			ended <- dial(ctx, &to, hello{attempt: attempt}, testutil.Limit).err
		}()
		c, err := ln.Accept()
		require.NoError(t, err)
		_, err = io.ReadFull(c, make([]byte, helloSize))
		require.NoError(t, err)
		return c
	}
	c := begin(firstAttempt + 1)
	defer c.Close()
	dialAgain(dials.l)
	require.ErrorIs(t, <-ended, errNetworkChanged)

	c = begin(firstAttempt)
	dialAgain(dials.l)
	require.Empty(t, ended)
	require.NoError(t, c.Close())
	require.ErrorIs(t, <-ended, io.EOF)

	fill(t, ln)
	to.hosts = append(to.hosts, dials.ep.peer.hosts...) // not the next one: the first is reached again
	go func() { ended <- dials.ep.dialHosts(ctx, &to, hello{attempt: firstAttempt}, testutil.Limit).err }()
	testutil.Eventually(t, testutil.Limit, func() bool { return dials.ep.abandon.Load() != nil }, "no connection was begun")
	dialAgain(dials.l)
	require.ErrorIs(t, <-ended, errNetworkChanged)
}

// fill makes ln ignore further connections: it has room for one, which nobody accepts.
func fill(t *testing.T, ln *net.TCPListener) {
	rc, err := ln.SyscallConn()
	require.NoError(t, err)
	require.NoError(t, rc.Control(func(fd uintptr) { err = unix.Listen(int(fd), 0) }))
	require.NoError(t, err)
	c, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
}

// The side that waits and has lost the connection has the other one dial at once, although that has not
// noticed; but not because of a connection before.
func TestInquiriesRecall(t *testing.T) {
	dials, waits := patient(t)
	ask := func(lost uint32) {
		j := waits.ep.dialHosts(testutil.Context(t, testutil.Limit), &waits.ep.peer, hello{attempt: inquiry, tally: tally{executed: lost}}, testutil.Limit)
		require.Error(t, j.err)
	}
	outages := func() uint64 { n, _ := dials.ep.Outages(); return n }
	for _, not := range []uint32{0, 2, inquiry} {
		ask(not)
	}
	write(t, dials, waits, 8)
	require.Zero(t, outages())
	ask(firstAttempt)
	until(t, "dialled again", func() bool { return outages() == 1 }, dials)
	write(t, dials, waits, 8)
	ask(firstAttempt)
	write(t, dials, waits, 8)
	require.EqualValues(t, 1, outages())
}
