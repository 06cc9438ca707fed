package rma

import (
	"bytes"
	"context"
	"runtime/trace"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/testutil"
)

// An execution trace names the operations of waits. The flight recorder is used because it
// works beside `go test -trace`.
func TestTraceRegions(t *testing.T) {
	rec := trace.NewFlightRecorder(trace.FlightRecorderConfig{MinAge: time.Minute, MaxBytes: 64 << 20})
	require.NoError(t, rec.Start())
	defer rec.Stop()
	ctx := testutil.Context(t, 60*time.Second)
	e, err := Open(ctx, &Config{Sampling: "off"})
	require.NoError(t, err)
	defer e.Close()
	mem, err := e.Alloc(4096)
	require.NoError(t, err)
	k := mem.Key()
	p := e.Peer(0)
	require.NoError(t, p.Put(k.At(64), mem.Slice(0, 8)).Wait(ctx))
	require.NoError(t, p.Get(mem.Slice(0, 8), k.At(64)).Wait(ctx))
	_, err = p.FetchAdd(k.At(0), 1).Wait(ctx)
	require.NoError(t, err)
	r := p.Recv(make([]byte, 8))
	require.NoError(t, p.Send([]byte("x")).Wait(ctx))
	_, err = r.Wait(ctx)
	require.NoError(t, err)
	require.NoError(t, WaitAll(ctx, p.Put(k.At(64), mem.Slice(0, 8)), p.PutSignal(k.At(64), mem.Slice(0, 8), k.At(128), SignalSet, 1)))
	_, err = WaitAny(ctx, p.Put(k.At(64), mem.Slice(0, 8)))
	require.NoError(t, err)
	_, err = e.WaitSignal(ctx, mem.Slice(128, 8), EQ, 1)
	require.NoError(t, err)
	require.NoError(t, e.Barrier(ctx))
	var b bytes.Buffer
	_, err = rec.WriteTo(&b)
	require.NoError(t, err)
	for _, name := range []string{
		regionOpen, regionBarrier, regionRegister,
		"rma.wait.put", "rma.wait.get", "rma.wait.fetch-add", "rma.wait.send", "rma.wait.receive",
		"rma.wait.all", "rma.wait.put-signal", "rma.wait.signal",
	} {
		require.Contains(t, b.String(), name)
	}
}

// The cost of tracing without a trace: a wait checks whether there is one, other calls
// begin an empty region.
func BenchmarkTraceOff(b *testing.B) {
	ctx := context.Background()
	b.Run("asked", func(b *testing.B) {
		n := 0
		for b.Loop() {
			if trace.IsEnabled() {
				n++
			}
		}
	})
	b.Run("region", func(b *testing.B) {
		for b.Loop() {
			trace.StartRegion(ctx, regionBarrier).End()
		}
	})
}
