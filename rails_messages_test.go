package rma

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/testutil"
)

// Messages of all sizes, from and into registered and other memory, arrive whole and in order
// while rails end and come back, and long ones are read over several rails.
func TestRailsCarryMessages(t *testing.T) {
	for device, list := range map[string]string{"sim": "sim", "tcp": "127.0.0.2, 127.0.0.3"} {
		t.Run(device, func(t *testing.T) {
			t.Parallel()
			es := rails(t, device, list)
			connectRails(t, es)
			carryMessages(t, es, 40)
		})
	}
}

func carryMessages(t *testing.T, es []*Engine, turns int) {
	ctx := testutil.Context(t, testutil.Limit)
	const most, tag = 1 << 20, 7
	mems, _ := share(t, es, 4*most)
	rng := rand.New(rand.NewPCG(7, 8))
	to, from := es[0].Peer(1), es[1].Peer(0)
	for turn := range turns {
		var sends []Request
		var recvs []RecvRequest
		var bufs [][]byte
		var lens []int
		n := 1 + rng.IntN(4)
		post := func(i int) {
			if rng.IntN(2) == 0 {
				bufs = append(bufs, mems[1].Bytes()[i*most:(i+1)*most])
				recvs = append(recvs, from.RecvBuffer(tag, mems[1].Slice(i*most, most)))
			} else {
				bufs = append(bufs, make([]byte, most))
				recvs = append(recvs, from.RecvTag(tag, bufs[i]))
			}
		}
		early := rng.IntN(n + 1)
		for i := range early {
			post(i)
		}
		for i := range n {
			size := 1 + rng.IntN(most>>(5*rng.IntN(2)))
			lens = append(lens, size)
			mem, region := mems[0].Bytes()[i*most:i*most+size], rng.IntN(2) == 0
			if !region {
				mem = make([]byte, size)
			}
			testutil.Fill(mem, uint64(turn*4+i), 0)
			if region {
				sends = append(sends, to.SendBuffer(tag, mems[0].Slice(i*most, size)))
			} else {
				sends = append(sends, to.SendTag(tag, mem))
			}
		}
		if turn%2 == 0 {
			es[rng.IntN(2)].breakRail(1 + rng.IntN(len(from.Stats().Rails)-1))
		}
		for i := early; i < n; i++ {
			post(i)
		}
		for i, r := range recvs {
			got, err := r.Wait(ctx)
			require.NoError(t, err)
			require.Equal(t, lens[i], got)
			require.NoError(t, testutil.Verify(bufs[i][:got], uint64(turn*4+i), 0), "turn %d, message %d", turn, i)
		}
		require.NoError(t, WaitAll(ctx, sends...))
	}
	connectRails(t, es)
	testutil.Eventually(t, testutil.Limit, func() bool {
		before := parts(from)
		r := from.RecvBuffer(tag, mems[1].Slice(0, most))
		s := to.SendBuffer(tag, mems[0].Slice(0, most))
		_, err := r.Wait(ctx)
		require.NoError(t, err)
		require.NoError(t, s.Wait(ctx))
		return parts(from) > before
	}, "parts of messages over other rails")
	require.Nil(t, from.Stats().Err)
}
