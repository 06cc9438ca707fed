//go:build rma_zoo

package ibv

import (
	"context"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/fabrictest"
	"github.com/seed33544411/rma/internal/testutil"
	"github.com/seed33544411/rma/verbs"
)

// quirk reports whether the device of this process has a quirk, by RMA_ZOO.
func quirk(name string) bool {
	for q := range strings.SplitSeq(os.Getenv("RMA_ZOO"), ",") {
		if q == name {
			return true
		}
	}
	return false
}

// verdict is a testing.TB that only notes whether a case fails, or ends early.
type verdict struct {
	testing.TB
	mu       sync.Mutex
	failed   bool
	cleanups []func()
}

func (v *verdict) fail() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.failed = true
}

func (v *verdict) Helper()               {}
func (v *verdict) Log(...any)            {}
func (v *verdict) Logf(string, ...any)   {}
func (v *verdict) Skip(...any)           { runtime.Goexit() }
func (v *verdict) Error(...any)          { v.fail() }
func (v *verdict) Errorf(string, ...any) { v.fail() }
func (v *verdict) FailNow()              { v.fail(); runtime.Goexit() }
func (v *verdict) Fatal(...any)          { v.FailNow() }
func (v *verdict) Fatalf(string, ...any) { v.FailNow() }
func (v *verdict) Cleanup(f func())      { v.cleanups = append(v.cleanups, f) }
func (v *verdict) part(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if recover() != nil {
				v.fail()
			}
		}()
		f()
	}()
	<-done
}

// fails runs one case of the conformance suite on links that open returns.
func fails(t *testing.T, name string, open func(testing.TB) (fabric.Link, fabric.Link)) bool {
	for _, c := range fabrictest.Cases() {
		if c.Name != name {
			continue
		}
		v := &verdict{TB: t}
		v.part(func() { c.Run(v, fabrictest.Factory{Open: open, Slow: testutil.Slow()}) })
		for i := len(v.cleanups) - 1; i >= 0; i-- {
			v.part(v.cleanups[i])
		}
		return v.failed
	}
	t.Fatalf("no case %s", name)
	return false
}

// Without the handling of a quirk, a case of the conformance suite fails on a device that
// has it; each shows that both the shim and the case work.
func TestZooMutants(t *testing.T) {
	need(t)
	last, quick := true, func(l *Link) {}
	for _, m := range []struct {
		name, by string
		applies  bool
		opt      Options
		without  func(l *Link)
	}{
		{"immediates are used", "Notify", quirk("no_imm"), Options{}, func(l *Link) { l.noImm = false }},
		{"atomics are used", "FetchAdd", quirk("no_atomics"), Options{}, func(l *Link) { l.noAtomics = false }},
		{"limit of pieces is not kept", "Gather", quirk("sge=1"), Options{}, func(l *Link) { l.caps.MaxSGE = 32 }},
		{"payloads are posted inline", "Inline", quirk("inline=0"), Options{}, func(l *Link) { l.noInline, l.inline = false, 32 }},
		{"limit of bytes inline is not kept", "Inline", quirk("inline=101"), Options{}, func(l *Link) { l.caps.MaxInline, l.inline = wantInline, wantInline }},
		{"limit of reads is not kept", "ReadSizes", quirk("reads=1"), Options{}, func(l *Link) { l.opt.MaxReads = 16 }},
		{"the last byte is believed to be last", "LastByteLast", quirk("shuffle"), Options{LastByteLast: &last}, quick},
		{"the first GID is taken", "WriteSizes", quirk("gid=v1-first"), Options{}, func(l *Link) { l.gid = l.firstGID(t) }},
		{"the first GID of equals is taken", "WriteSizes", quirk("gid=vlan"), Options{}, func(l *Link) { l.gid = l.firstGID(t) }},
	} {
		if !m.applies {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			require.True(t, fails(t, m.by, func(tb testing.TB) (fabric.Link, fabric.Link) {
				a, b := open2Of(tb, m.opt)
				m.without(a.(*Link))
				m.without(b.(*Link))
				return a, b
			}), "%s passes", m.by)
		})
	}
}

// A read brings what the write before it has written, in pieces, although another thread polls its
// link meanwhile, which lands pieces as well.
func TestZooPollsBesideShuffle(t *testing.T) {
	if !quirk("shuffle") {
		t.Skip("the device does not shuffle")
	}
	a, b := pair(t, fabric.EndpointOptions{})
	ctx, stop := context.WithCancel(testutil.Context(t, testutil.Limit))
	var polls sync.WaitGroup
	polls.Go(func() {
		for ctx.Err() == nil {
			b.l.Poll(b.cs[:])
		}
	})
	defer polls.Wait()
	defer stop()
	const size, most = 64 * 8, 24
	var wrs [2 * most]fabric.WR
	for k := range most {
		w := a.write(b, size, 0)
		w.Local[0].Addr += uint64(k * size)
		w.RemoteAddr += uint64(k * size)
		wrs[2*k], wrs[2*k+1] = w, w
		r := &wrs[2*k+1]
		r.Op, r.Local = fabric.OpRead, []fabric.SGE{fabric.NewSGE(a.mem.Bytes()[(most+k)*size:][:size], a.mem.LKey())}
	}
	wrs[2*most-1].Flags = fabric.FlagSignaled
	for i := range uint64(4000 / testutil.Slow()) {
		testutil.Fill(a.mem.Bytes()[:most*size], i, 0)
		n, err := a.ep.Post(wrs[:])
		require.NoError(t, err)
		require.Equal(t, len(wrs), n)
		require.Equal(t, fabric.StatusOK, a.wait()[0].Status)
		require.NoError(t, testutil.Verify(a.mem.Bytes()[most*size:2*most*size], i, 0), "round %d", i)
	}
}

func (l *Link) firstGID(t *testing.T) verbs.GIDEntry {
	table, err := l.ctx.GIDs(l.port)
	require.NoError(t, err)
	return table[0]
}

// The entry of the GID table that works is found, and the reason tells what is wrong with
// the others.
func TestZooGID(t *testing.T) {
	dev, _ := need(t)
	l, err := Open(Options{Device: dev})
	require.NoError(t, err)
	t.Log(l.Choice())
	switch {
	case quirk("gid=vlan"):
		require.Equal(t, 2, l.gid.Index)
		require.Contains(t, l.Choice(), "GID 0 is not used")
		require.Contains(t, l.Choice(), "GID 1 is not used")
	case quirk("gid=v1-first"):
		require.Equal(t, 2, l.gid.Index)
	case quirk("gid=local-first"):
		require.Equal(t, 3, l.gid.Index)
	case quirk("gid=v1-only"):
		require.Equal(t, 1, l.gid.Index)
	case quirk("gid=dead"):
		require.Contains(t, l.Choice(), "not tested: GID 0 is not used")
	}
	require.NoError(t, l.Close())
}

// Limits are found by trying, as near as the device allows.
func TestZooLimits(t *testing.T) {
	dev, _ := need(t)
	l, err := Open(Options{Device: dev})
	if quirk("reads=0") {
		require.ErrorIs(t, err, ErrNoReads)
		require.ErrorIs(t, err, fabric.ErrNotSupported)
		return
	}
	require.NoError(t, err)
	t.Logf("%+v, %d inline", l.Caps(), l.inline)
	for q, least := range map[string]int{"inline=0": 0, "inline=32": 32, "inline=64": 64, "inline=80": 80, "inline=96": 96, "inline=101": 98, "inline=128": 128} {
		if quirk(q) {
			require.GreaterOrEqual(t, l.inline, least)
		}
	}
	require.GreaterOrEqual(t, l.Caps().MaxInline, leastInline)
	require.Equal(t, quirk("no_imm"), l.noImm)
	require.Equal(t, quirk("no_atomics"), l.noAtomics)
	require.NoError(t, l.Close())
}

// TestContinuesAcrossFailures, over another port as well, on devices that lack operations. The shim divides a
// write that it shuffles, so that nobody knows its packets.
func TestZooContinues(t *testing.T) {
	need(t)
	if !quirk("shuffle") {
		continues(t)
	}
}

// TestCarriedOn on devices that lack operations.
func TestZooCarriedOn(t *testing.T) {
	need(t)
	if !quirk("shuffle") {
		carriedOn(t)
	}
}
