package rma

import (
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/testutil"
)

// Receives in batches, from one rank and from any, mixed with single ones, get the same
// messages as single receives would: each message goes to the first receive that matches
// it, whether the receives or the messages come first.
func TestRecvBatch(t *testing.T) {
	onEach(t, func(t *testing.T, fabric string) {
		es := open(t, 2, fabric)
		for seed := range uint64(4) {
			for _, from := range []int{1, 0} { // another, oneself
				matchBatches(t, es, from, seed)
			}
		}
	})
}

// matchBatches sends messages to rank 0 and receives them by random receives.
func matchBatches(t *testing.T, es []*Engine, from int, seed uint64) {
	ctx := testutil.Context(t, testutil.Limit)
	rng := rand.New(rand.NewPCG(seed, uint64(from)))
	type receive struct {
		want Tags
		buf  []byte
		got  func() (Envelope, error)
	}
	var receives []*receive
	var reqs []Request
	post := func() {
		for range 12 {
			add := func() *receive {
				r := &receive{want: Tags{Tag: uint32(rng.IntN(3))}, buf: make([]byte, 70_000)}
				if rng.IntN(4) == 0 {
					r.want.Ignore = 3
				}
				receives = append(receives, r)
				return r
			}
			single := func(q RecvRequest, r *receive) { r.got = func() (Envelope, error) { return q.WaitFrom(ctx) } }
			p := es[0].Peer(from)
			switch rng.IntN(4) {
			case 0:
				r := add()
				single(r.want.Recv(p, r.buf), r)
			case 1:
				r := add()
				single(r.want.RecvAny(es[0], r.buf), r)
			default:
				b := new(RecvBatch)
				for i := range 1 + rng.IntN(10) {
					r := add()
					b.AddTags(r.want, r.buf)
					r.got = func() (Envelope, error) { return b.Got(i) }
				}
				if rng.IntN(2) == 0 {
					reqs = append(reqs, b.Recv(p))
				} else {
					reqs = append(reqs, b.RecvAny(es[0]))
				}
			}
		}
	}
	if seed%2 == 0 {
		post()
	}
	// More messages than receives of each tag, so that all receives end.
	var tags []uint32
	var msgs [][]byte
	var sent []Request
	for i := range 240 {
		size := []int{8, 8, 8, 64, 0, 300, 8, 8, 5000, 8}[rng.IntN(10)]
		if i%50 == 7 {
			size = 70_000
		}
		tags, msgs = append(tags, uint32(rng.IntN(3))), append(msgs, testutil.Payload(size, seed, uint64(i)))
	}
	b := es[from].Peer(0).Batch()
	for i, m := range msgs {
		if b.Add(tags[i], m); rng.IntN(8) == 0 || i == len(msgs)-1 {
			sent = append(sent, b.Send())
			b = es[from].Peer(0).Batch()
		}
	}
	if seed%2 == 1 {
		post()
	}
	require.NoError(t, WaitAll(ctx, reqs...))
	taken := make([]*receive, len(msgs))
	for k, r := range receives {
		at := -1
		for i, tag := range tags {
			if taken[i] == nil && (tag^r.want.Tag)&^r.want.Ignore == 0 {
				at = i
				break
			}
		}
		require.GreaterOrEqual(t, at, 0)
		taken[at] = r
		m, err := r.got()
		require.NoError(t, err)
		require.Equal(t, Envelope{From: from, Tag: tags[at], Len: len(msgs[at])}, m, "receive %d, message %d", k, at)
		require.NoError(t, testutil.Verify(r.buf[:m.Len], seed, uint64(at)))
	}
	var rest RecvBatch // receives the remaining messages, in order
	for i := range msgs {
		if taken[i] == nil {
			rest.Add(tags[i], make([]byte, 70_000))
		}
	}
	require.NoError(t, rest.RecvAny(es[0]).Wait(ctx))
	require.NoError(t, WaitAll(ctx, sent...))
}

// Receives of a batch end one by one: some get their message, a buffer is too short, the
// others are withdrawn. All can be posted again.
func TestRecvBatchEnds(t *testing.T) {
	onEach(t, func(t *testing.T, fabric string) {
		ctx := testutil.Context(t, testutil.Limit)
		es := open(t, 2, fabric)
		var b RecvBatch
		require.NoError(t, b.Recv(es[0].Peer(1)).Wait(ctx), "an empty one")
		require.NoError(t, b.RecvAny(es[0]).Wait(ctx))
		for i := range 4 {
			b.Add(uint32(i), make([]byte, 8))
		}
		b.Cancel() // nothing is posted
		fetch := es[0].Peer(1)
		for round, post := range []func() Request{
			func() Request { return b.Recv(fetch) }, // there is no channel yet
			func() Request { return b.RecvAny(es[0]) },
			func() Request { return b.Recv(es[0].Peer(0)) },
			func() Request { return b.Recv(fetch) },
		} {
			from := 1
			if round == 2 {
				from = 0
			}
			r := post()
			if round > 0 {
				require.NoError(t, es[from].Peer(0).SendTag(1, []byte("one")).Wait(ctx))
				long := es[from].Peer(0).SendTag(2, []byte("too long")) // fits
				require.NoError(t, long.Wait(ctx))
				require.NoError(t, es[from].Peer(0).SendTag(3, []byte("much too long")).Wait(ctx))
				require.NoError(t, es[from].Peer(0).SendTag(9, nil).Wait(ctx)) // behind the others
				_, err := es[0].Peer(from).RecvTag(9, nil).Wait(ctx)
				require.NoError(t, err)
			}
			require.False(t, r.Done())
			b.Cancel()
			require.ErrorIs(t, r.Wait(ctx), map[bool]error{true: ErrCanceled, false: ErrShortBuffer}[round == 0])
			b.Cancel() // nothing is left
			for i, want := range []error{ErrCanceled, nil, nil, ErrShortBuffer} {
				if round == 0 {
					want = ErrCanceled
				}
				m, err := b.Got(i)
				if require.ErrorIs(t, err, want); want == nil {
					require.Equal(t, Envelope{From: from, Tag: uint32(i), Len: []int{0, 3, 8}[i]}, m)
				}
			}
			if round > 0 { // the message that was too long has stayed
				_, err := es[0].Peer(from).RecvTag(3, make([]byte, 20)).Wait(ctx)
				require.NoError(t, err)
			}
		}
		r := b.Recv(fetch)
		require.NoError(t, es[1].Close())
		require.ErrorIs(t, r.Wait(ctx), ErrPeerGone)
		none := b.RecvAny(es[0])
		require.ErrorIs(t, none.Wait(ctx), ErrNoSender)
		_, err := b.Got(3)
		require.ErrorIs(t, err, ErrNoSender)
		require.NoError(t, es[0].Close())
		require.ErrorIs(t, b.Recv(fetch).Wait(ctx), ErrClosed)
		_, err = b.Got(0)
		require.ErrorIs(t, err, ErrClosed)
		require.ErrorIs(t, b.RecvAny(es[0]).Wait(ctx), ErrClosed)
		b.Cancel()
		b.Reset()
		require.Zero(t, b.Len())
	})
}

// Cancel withdraws receives whose request Then has used up as well: the callback gets the error.
func TestRecvBatchCancelAfterThen(t *testing.T) {
	onEach(t, func(t *testing.T, fabric string) {
		es := open(t, 2, fabric)
		var b RecvBatch
		b.Add(1, make([]byte, 8))
		b.Add(2, make([]byte, 8))
		for round, post := range []func() Request{
			func() Request { return b.Recv(es[0].Peer(1)) },
			func() Request { return b.RecvAny(es[0]) },
			func() Request { return b.Recv(es[0].Peer(0)) },
		} {
			over := make(chan error, 1)
			post().Then(func(err error) { over <- err })
			b.Cancel()
			testutil.Eventually(t, testutil.Limit, func() bool { return len(over) > 0 }, "round %d", round)
			require.ErrorIs(t, <-over, ErrCanceled)
			b.Cancel() // nothing is left
			_, err := b.Got(1)
			require.ErrorIs(t, err, ErrCanceled)
		}
		probe := es[0].Probe(7)
		over := make(chan error, 1)
		probe.Then(func(err error) { over <- err })
		probe.Cancel()
		testutil.Eventually(t, testutil.Limit, func() bool { return len(over) > 0 }, "a single one")
		require.ErrorIs(t, <-over, ErrCanceled)
	})
}

func TestRecvBatchDoesNotAllocate(t *testing.T) {
	if testutil.Race {
		t.Skip("the race detector makes sync.Pool forget")
	}
	es := open(t, 2, "shm")
	ctx := testutil.Context(t, testutil.Limit)
	var in RecvBatch
	out, msg := es[0].Peer(1).Batch(), make([]byte, 8)
	for range 32 {
		in.Add(1, make([]byte, 8))
	}
	for _, post := range []func() Request{
		func() Request { return in.Recv(es[1].Peer(0)) },
		func() Request { return in.RecvAny(es[1]) },
	} {
		round := func() {
			r := post()
			out.Reset()
			for range in.Len() {
				out.Add(1, msg)
			}
			if err := out.Send().Wait(ctx); err != nil {
				panic(err)
			}
			if err := r.Wait(ctx); err != nil {
				panic(err)
			}
		}
		round()
		runtime.GC()
		require.Zero(t, testutil.AllocsPerRun(100, round))
	}
}
