package rma

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/linktest"
	"github.com/seed33544411/rma/internal/initiator"
)

// The time that the interface adds to the link's, for one operation of 8 bytes at a time,
// in ns:
//
//	go test -run '^$' -bench Overhead -benchtime 200x .
//
// Runs through the interface and runs over the raw link alternate; the figures are medians.
// The raw side posts one request and polls for its completion.
func BenchmarkOverhead(b *testing.B) {
	const run = 500
	for _, kind := range []initiator.Kind{initiator.Put, initiator.Get, initiator.FetchAdd} {
		b.Run("shm/"+kind.String(), func(b *testing.B) {
			es := open(b, 2, "shm")
			mems, keys := share(b, es, 4096)
			p, ctx, m, k := es[0].Peer(1), context.Background(), mems[0], &keys[1]
			api := func() {
				var err error
				switch kind {
				case initiator.Put:
					err = p.Put(k.At(0), m.Slice(0, 8)).Wait(ctx)
				case initiator.Get:
					err = p.Get(m.Slice(0, 8), k.At(0)).Wait(ctx)
				default:
					_, err = p.FetchAdd(k.At(0), 1).Wait(ctx)
				}
				if err != nil {
					b.Fatal(err)
				}
			}
			raw := rawOp(b, kind)
			var with, without []time.Duration
			b.ReportAllocs()
			for b.Loop() {
				with = append(with, timed(run, api))
				without = append(without, timed(run, raw))
			}
			x, y := median(with)/run, median(without)/run
			b.ReportMetric(float64(x), "api-ns")
			b.ReportMetric(float64(y), "raw-ns")
			b.ReportMetric(float64(x-y), "added-ns")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func timed(n int, f func()) time.Duration {
	start := time.Now()
	for range n {
		f()
	}
	return time.Since(start)
}

func median(ds []time.Duration) time.Duration {
	slices.Sort(ds)
	return ds[len(ds)/2]
}

// rawOp is one request of 8 bytes, posted and polled for.
func rawOp(b *testing.B, kind initiator.Kind) func() {
	op := map[initiator.Kind]fabric.Op{initiator.Put: fabric.OpWrite, initiator.Get: fabric.OpRead, initiator.FetchAdd: fabric.OpFetchAdd}[kind]
	here, there := linktest.Real()["shm"](b)
	ep, _ := linktest.Join(b, here, there, fabric.EndpointOptions{})
	src, err := here.Alloc(4096, fabric.AccessAll)
	require.NoError(b, err)
	dst, err := there.Alloc(4096, fabric.AccessAll)
	require.NoError(b, err)
	b.Cleanup(func() {
		require.NoError(b, src.Close())
		require.NoError(b, dst.Close())
	})
	sges := []fabric.SGE{fabric.NewSGE(src.Bytes()[:8], src.LKey())}
	wrs := []fabric.WR{{
		ID: 1, Op: op, Flags: fabric.FlagSignaled, Local: sges, RemoteAddr: dst.Addr(), RKey: dst.Key().RKey, Operand: 1,
	}}
	cs := make([]fabric.Completion, 16)
	return func() {
		if n, err := ep.Post(wrs); n != 1 || err != nil {
			b.Fatal(n, err)
		}
		for here.Poll(cs) == 0 {
		}
		if cs[0].Status != fabric.StatusOK {
			b.Fatal(cs[0].Err())
		}
	}
}
