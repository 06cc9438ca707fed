package rma

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// The cost of a small message of a stream for both ranks together, through the interface.
// One goroutine drives both engines in turn, so that neither traffic between processors nor
// waiting is included: a message that finds the ring full would wait until the progress
// goroutine of the receiver, which dozes, returns credit.
func BenchmarkRate(b *testing.B) {
	// Of the ring's 64 blocks 56 are for data, and the receiver may owe credit for 31.
	const alone = 24 // messages, each of which takes a block
	for _, c := range []struct {
		how   string
		chain int
	}{{"batch", 32}, {"forget", alone}, {"wait", alone}} {
		for _, to := range []string{"handler", "many", "receives", "bulk"} {
			for _, size := range []int{8, 64} {
				b.Run(fmt.Sprintf("%s/%s/%d", c.how, to, size), func(b *testing.B) {
					es := open(b, 2, "shm")
					r := newRater(b, es, c.how, to, size, c.chain)
					r.run(20 * c.chain)
					b.ReportAllocs()
					b.ResetTimer()
					r.run(b.N)
				})
			}
		}
	}
}

type rater struct {
	b     *testing.B
	here  *Peer // of the sender
	there *Engine
	ctx   context.Context
	msg   []byte
	bufs  [][]byte
	recvs []RecvRequest
	bulk  RecvBatch
	taken Request // of bulk
	sends []Request
	batch *Batch
	how   string
	got   int
}

func newRater(b *testing.B, es []*Engine, how, to string, size, chain int) *rater {
	r := &rater{b: b, here: es[0].Peer(1), there: es[1], ctx: context.Background(), msg: make([]byte, size), how: how}
	r.batch = r.here.Batch()
	r.sends = make([]Request, chain)
	// The channel is made by the first message.
	first := es[1].Peer(0).RecvTag(9, nil)
	require.NoError(b, r.here.SendTag(9, nil).Wait(r.ctx))
	_, err := first.Wait(r.ctx)
	require.NoError(b, err)
	switch to {
	case "bulk":
		for range chain {
			r.bulk.Add(3, make([]byte, size))
		}
		r.taken = r.bulk.Recv(es[1].Peer(0))
		return r
	case "handler", "many":
		h, err := es[1].Handle(3, func(m Envelope, _ [][]byte) { r.got++ })
		if to == "many" {
			h.Close()
			h, err = HandleMany(es[1], HandlerOptions{Tag: 3}, func(ms *Messages) {
				for _, ok := ms.Next(); ok; _, ok = ms.Next() {
					r.got++
				}
			})
		}
		require.NoError(b, err)
		b.Cleanup(h.Close)
		return r
	}
	r.recvs = make([]RecvRequest, chain)
	for i := range r.recvs {
		r.bufs = append(r.bufs, make([]byte, size))
		r.recvs[i] = es[1].Peer(0).RecvTag(3, r.bufs[i])
	}
	return r
}

// run moves at least n messages.
func (r *rater) run(n int) {
	for end := r.got + n; r.got < end; {
		r.send()
		r.recv()
	}
}

//go:noinline
func (r *rater) send() {
	switch r.how {
	case "batch":
		r.batch.Reset()
		for range r.sends {
			r.batch.Add(3, r.msg)
		}
		r.check(r.batch.Send().Wait(r.ctx))
	case "forget":
		for range r.sends {
			r.here.SendTag(3, r.msg).Forget()
		}
	case "wait":
		for i := range r.sends {
			r.sends[i] = r.here.SendTag(3, r.msg)
		}
		r.check(WaitAll(r.ctx, r.sends...))
	}
}

//go:noinline
func (r *rater) recv() {
	switch {
	case r.bulk.Len() > 0:
		r.check(r.taken.Wait(r.ctx))
		r.got += r.bulk.Len()
		r.taken = r.bulk.Recv(r.there.Peer(0))
		return
	case r.recvs == nil:
		r.there.prog.Progress()
		return
	}
	for i := range r.recvs {
		n, err := r.recvs[i].Wait(r.ctx)
		r.check(err)
		if n != len(r.msg) {
			r.b.Fatal(n)
		}
		r.got++
		r.recvs[i] = r.there.Peer(0).RecvTag(3, r.bufs[i])
	}
}

func (r *rater) check(err error) {
	if err != nil {
		r.b.Fatal(err)
	}
}
