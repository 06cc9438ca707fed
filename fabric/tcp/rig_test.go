//go:build linux

package tcp

import (
	"bufio"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/testutil"
)

// host is one link, one endpoint and one region of it.
type host struct {
	tb  testing.TB
	l   *link
	ep  *endpoint
	reg fabric.Region
	cs  [16]fabric.Completion
	got []fabric.Completion
}

func newHost(tb testing.TB, cfg Config, o fabric.EndpointOptions, size int) *host {
	l, err := Open(&cfg)
	require.NoError(tb, err)
	h := &host{tb: tb, l: l.(*link)}
	h.reg, err = l.Alloc(size, fabric.AccessAll)
	require.NoError(tb, err)
	ep, err := l.NewEndpoint(o)
	require.NoError(tb, err)
	h.ep = ep.(*endpoint)
	tb.Cleanup(func() {
		require.NoError(tb, h.reg.Close())
		require.NoError(tb, l.Close())
	})
	return h
}

// join connects two hosts of this process.
func join(tb testing.TB, a, b *host) {
	ctx := testutil.Context(tb, testutil.Limit)
	errs := make(chan error, 1)
	addr := a.ep.Address()
	go func() { errs <- a.ep.Connect(ctx, b.ep.Address()) }()
	require.NoError(tb, b.ep.Connect(ctx, addr))
	require.NoError(tb, <-errs)
}

func pair(tb testing.TB, cfg Config, size int) (a, b *host) {
	a, b = newHost(tb, cfg, fabric.EndpointOptions{ID: 1}, size), newHost(tb, cfg, fabric.EndpointOptions{ID: 2}, size)
	join(tb, a, b)
	return a, b
}

func (h *host) poll() {
	n := h.l.Poll(h.cs[:])
	h.got = append(h.got, h.cs[:n]...)
}

// until polls the hosts until done.
func until(tb testing.TB, what string, done func() bool, hosts ...*host) {
	tb.Helper()
	var sp cpu.Spinner
	end := time.Now().Add(testutil.Limit)
	for n := 1; !done(); n++ {
		for _, h := range hosts {
			h.poll()
		}
		sp.Wait()
		if n&63 == 0 && time.Now().After(end) {
			tb.Fatalf("%s: not within %v", what, testutil.Limit)
		}
	}
}

func (h *host) sge(off, n int) []fabric.SGE {
	return []fabric.SGE{{Addr: h.reg.Addr() + uint64(off), Len: uint32(n), LKey: h.reg.LKey()}}
}

func (h *host) write(off, n int, to fabric.RemoteKey, flags fabric.Flags) fabric.WR {
	return fabric.WR{Op: fabric.OpWrite, Local: h.sge(off, n), RemoteAddr: to.Addr + uint64(off), RKey: to.RKey, Flags: flags}
}

// Modes of the second process.
const (
	modeSink = "sink" // polls until its in is closed
	modeEcho = "echo" // answers each new value of its first word with the same
	modeIdle = "idle" // connects and does not poll until told
)

var peerChild = testutil.NewChild("peer", func(args []string, in *bufio.Reader, out io.Writer) error {
	mode := args[0]
	l, err := Open(nil)
	if err != nil {
		return err
	}
	defer l.Close()
	reg, err := l.Alloc(8<<20, fabric.AccessAll)
	if err != nil {
		return err
	}
	defer reg.Close()
	ep, err := l.NewEndpoint(fabric.EndpointOptions{ID: 9})
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
	fmt.Fprintln(out, "up")
	if mode == modeIdle {
		_, err := in.ReadString('\n')
		return err
	}
	eof := make(chan struct{})
	go func() { _, _ = io.Copy(io.Discard, in); close(eof) }()
	var cs [16]fabric.Completion
	wr := []fabric.WR{{
		Op: fabric.OpWrite, Flags: fabric.FlagInline, RemoteAddr: key.Addr, RKey: key.RKey,
		Local: []fabric.SGE{{Addr: reg.Addr() + 64, Len: 8}},
	}}
	var sp cpu.Spinner
	for last := uint64(0); ; {
		n := l.Poll(cs[:])
		v := testutil.Load64(reg.Bytes())
		if mode == modeEcho && v != last {
			last = v
			testutil.Store64(reg.Bytes()[64:], v)
			for k := 0; k == 0; {
				if k, err = ep.Post(wr); err != nil {
					return err
				}
			}
			sp.Reset()
			continue
		}
		if n > 0 {
			sp.Reset()
			continue
		}
		if sp.Wait() > 0 {
			select {
			case <-eof:
				return nil
			default:
			}
		}
	}
})

// swap tells the other process our address and key and reads its own.
func swap(in *bufio.Reader, out io.Writer, addr []byte, key fabric.RemoteKey) ([]byte, fabric.RemoteKey, error) {
	if _, err := fmt.Fprintf(out, "%x %x\n", addr, key.Append(nil)); err != nil {
		return nil, key, err
	}
	line, err := in.ReadString('\n')
	if err != nil {
		return nil, key, err
	}
	f := strings.Fields(line)
	if len(f) != 2 {
		return nil, key, fmt.Errorf("peer says %q", line)
	}
	theirs, err := hex.DecodeString(f[0])
	if err != nil {
		return nil, key, err
	}
	kb, err := hex.DecodeString(f[1])
	if err != nil {
		return nil, key, err
	}
	key, _, err = fabric.ParseRemoteKey(kb)
	return theirs, key, err
}

// spawn starts a second process in the given mode and connects to it.
func spawn(tb testing.TB, mode string, o fabric.EndpointOptions) (*host, *testutil.Proc, fabric.RemoteKey) {
	return spawnWith(tb, Config{}, mode, o)
}

func spawnWith(tb testing.TB, cfg Config, mode string, o fabric.EndpointOptions) (*host, *testutil.Proc, fabric.RemoteKey) {
	h := newHost(tb, cfg, o, 8<<20)
	p := peerChild.Start(tb, mode)
	theirs, key, err := swap(p.Out, p.In, h.ep.Address(), h.reg.Key())
	require.NoError(tb, err)
	require.NoError(tb, h.ep.Connect(testutil.Context(tb, testutil.Limit), theirs))
	require.Equal(tb, "up", p.Line(tb, testutil.Limit))
	return h, p, key
}
