package coll

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/internal/testutil"
	"github.com/seed33544411/rma/sampling"
)

var (
	goldenCall   = call{kind: kindReduce, op: opSum, elem: reflect.Float64, alg: algBinomial, size: 8, root: 2, count: 5}
	goldenHeader = header{tag: 7, seq: 0x01020304, slot: 9, call: goldenCall, bytes: 40}
	zeros        = strings.Repeat("00", reasonSize)
	goldenFrames = map[string]frame{
		"0601000005000000" + "0100000000000000" + "0200000000000000" + zeros + "030061622d": {kind: frameJoin, number: 5, nonce: 1, members: 2, name: "ab-"},
		"0607000006000000" + zeros[:32] + "0103000002000000" + zeros[16:] + "0000":          {kind: frameRevoke, number: 6, why: reason{code: 1, op: kindReduce, rank: 2}},
		"0608000005000000" + "0300000004000000" + "0300000000000000" + zeros + "030061622d" + "0200000001000000": {kind: frameView, number: 5,
			nonce: 4<<32 | 3, members: 1<<1 | 1, name: "ab-", table: [][2]uint32{{2, viewGone}}},
	}
)

func TestGoldenHeader(t *testing.T) {
	const golden = "07000000040302010900000600000000" + "03010e02020000000500000000000800" + "2800000000000000"
	b := make([]byte, headerSize)
	goldenHeader.put(b)
	require.Equal(t, golden, hex.EncodeToString(b))
	h, ok := parseHeader(b, headerSize+40)
	require.True(t, ok)
	require.Equal(t, goldenHeader, h)
	for n := range headerSize {
		_, ok := parseHeader(b[:n], headerSize+40)
		require.False(t, ok)
		_, ok = parseHeader(b, n)
		require.False(t, ok)
	}
}

func TestGoldenFrames(t *testing.T) {
	for text, f := range goldenFrames {
		b := f.bytes()
		require.Equal(t, text, hex.EncodeToString(b), "%+v", f)
		got, ok := parseFrame(b)
		require.True(t, ok)
		require.Equal(t, f, got)
		for n := range b[:len(b)-8*len(f.table)] { // without some of its entries a table is one as well
			_, ok := parseFrame(b[:n])
			require.False(t, ok, "%d bytes", n)
		}
	}
	table := frame{kind: frameTable, name: "t", table: [][2]uint32{{1, 2}, {3, 4}}}
	got, ok := parseFrame(table.bytes())
	require.True(t, ok)
	require.Equal(t, table, got)
}

// The reason of a revocation is the same error on the rank that is told.
func TestReasons(t *testing.T) {
	for _, c := range causes[1 : len(causes)-1] {
		err := reasonOf(fmt.Errorf("x: %w", &rma.PeerError{Rank: 3, Op: "Bcast", Err: c}), 1).error(1, 4)
		require.Equal(t, &rma.PeerError{Rank: 3, Op: "Bcast", Err: c}, err)
	}
	m := mismatch{ranks: [2]int{1, 2}, calls: [2]call{goldenCall, {kind: kindBarrier}}}
	b := reasonOf(m.error(), 1).append(nil)
	require.Len(t, b, reasonSize)
	require.Equal(t, m.error(), parseReason(b).error(1, 4))
	var pe *rma.PeerError
	require.ErrorAs(t, reason{code: 200, rank: 77}.error(2, 4), &pe)
	require.Equal(t, 2, pe.Rank, "a rank that does not exist is the sender")
}

func FuzzHeader(f *testing.F) {
	b := make([]byte, headerSize)
	goldenHeader.put(b)
	f.Add(b, headerSize+40)
	f.Fuzz(func(t *testing.T, b []byte, n int) {
		h, ok := parseHeader(b, n)
		if !ok {
			return
		}
		_ = h.call.String()
		again := make([]byte, headerSize)
		h.put(again)
		require.Equal(t, b[:headerSize], again)
	})
}

func FuzzFrame(f *testing.F) {
	for text := range goldenFrames {
		b, _ := hex.DecodeString(text)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		x, ok := parseFrame(b)
		if !ok {
			return
		}
		_ = x.why.error(0, 4).Error()
		again, ok := parseFrame(x.bytes())
		require.True(t, ok)
		require.Equal(t, x, again)
	})
}

// A rank that violates the protocol ends the teams that it is in, and does no other harm.
func TestLies(t *testing.T) {
	valid := func(change func(h *header)) []byte {
		h := header{call: call{kind: kindBarrier, alg: algDissemination}}
		change(&h)
		b := make([]byte, headerSize)
		h.put(b)
		return b
	}
	for name, lie := range map[string]struct {
		tag     uint32
		msg     []byte
		revokes bool
	}{
		"short":           {tagData, make([]byte, headerSize-1), false},
		"zeros":           {tagData, make([]byte, headerSize), true},
		"no such team":    {tagData | 99, valid(func(*header) {}), false},
		"no data":         {tagData, valid(func(h *header) { h.bytes = 8 }), true},
		"no such message": {tagData, valid(func(h *header) { h.slot = 50 }), true},
		"much data":       {tagData, valid(func(h *header) { h.bytes, h.later = 1<<50, 5 }), true},
		"control":         {tagControl, []byte("nothing"), true},
		"revokes no team": {tagControl, (&frame{kind: frameRevoke, number: 50}).bytes(), false},
		"table":           {tagControl, (&frame{kind: frameTable, name: "x", table: [][2]uint32{{0, 0}, {9, 9}}}).bytes(), false},
		"ready":           {tagControl, (&frame{kind: frameReady, name: "x"}).bytes(), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			es := job(t, 3, "shm")
			ctx := testutil.Context(t, testutil.Limit)
			ts := worlds(t, es)
			pair := make([]*Team, 2)
			each(t, ts[:2], func(r int, _ *Team) (err error) { pair[r], err = New(ctx, es[r], []int{0, 1}, "pair"); return err })
			for to := range 2 {
				require.NoError(t, es[2].Peer(to).SendTag(lie.tag, lie.msg).Wait(ctx))
			}
			for _, team := range ts { // the choice would need rank 2
				require.NoError(t, team.Force("barrier=dissemination"))
			}
			if lie.revokes {
				each(t, ts[:2], func(_ int, world *Team) error {
					if err := Barrier(ctx, world); !errors.Is(err, ErrRevoked) {
						return err
					}
					return nil
				})
			}
			each(t, pair, func(_ int, team *Team) error { return conform(ctx, team, 1, 3, 1) })
		})
	}
}

// A message that is no header ends the team whose number it has if its sender is a member, and
// harms nobody if it is not: before the members are known, and after.
func TestMalformedHeader(t *testing.T) {
	for _, c := range []struct {
		from, until int // the members are known after so many of the two messages
	}{{1, 0}, {1, 1}, {2, 0}, {2, 1}, {2, 2}} {
		t.Run(fmt.Sprintf("from %d known after %d", c.from, c.until), func(t *testing.T) {
			t.Parallel()
			ctx := testutil.Context(t, testutil.Limit)
			ts := worlds(t, job(t, 3, "shm"))
			mine, numbers, other := newPair(t, ts)
			lie := func() {
				m := rma.Envelope{From: c.from, Tag: tagData | mine.number, Len: headerSize}
				(*receiver)(mine.s).Arrived(m, nil, [][]byte{make([]byte, headerSize)}, nil)
			}
			for range c.until {
				lie()
			}
			pair, err := mine.s.complete(mine, []int{0, 1}, numbers)
			for range 2 - c.until {
				lie()
			}
			if c.from == 1 {
				if c.until == 0 {
					require.NoError(t, err)
					err = pair.Err()
				}
				require.ErrorIs(t, err, ErrProtocol)
				return
			}
			require.NoError(t, err)
			each(t, []*Team{pair, other}, func(_ int, team *Team) error { return conform(ctx, team, 0, 3, 1) })
		})
	}
}

// Data that is not as long as its header says revokes the team, whether it comes through the
// ring or is fetched, and does not leave an operation that looks complete.
func TestDataOfAnotherLength(t *testing.T) {
	for _, n := range []int{8 << 10, 1 << 20} {
		for _, more := range []int{-n, 1 - n, -8, 8} {
			t.Run(fmt.Sprintf("%d%+d", n, more), func(t *testing.T) {
				t.Parallel()
				es := job(t, 2, "shm")
				ctx := testutil.Context(t, testutil.Limit)
				ts := worlds(t, es)
				require.NoError(t, ts[0].Force("bcast=binomial"))
				got := make([]int64, n/8)
				q := StartBcast(ts[0], 1, got)
				h := header{later: 5, bytes: uint64(n), call: call{kind: kindBcast, elem: reflect.Int64, alg: algBinomial, size: 8, root: 1, count: uint64(n / 8)}}
				b := make([]byte, headerSize)
				h.put(b)
				require.NoError(t, es[1].Peer(0).SendTag(tagData, b).Wait(ctx))
				es[1].Peer(0).SendFunc(tagPayload|5, make([]byte, n+more), nil)
				err := q.Wait(ctx)
				require.ErrorIs(t, err, ErrRevoked)
				if more < 0 {
					require.ErrorIs(t, err, ErrProtocol)
					var pe *rma.PeerError
					require.ErrorAs(t, err, &pe)
					require.Equal(t, 1, pe.Rank)
				}
			})
		}
	}
}

// A rank that joins a team of others, with their list or another one, neither fails nor ends it.
func TestJoinOfAStranger(t *testing.T) {
	for name, ranks := range map[string][]int{"their list": {0, 1}, "another list": {0, 2}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			es := job(t, 3, "shm")
			ctx := testutil.Context(t, testutil.Limit)
			s := worlds(t, es)[0].t.s
			lie := func(kind byte) {
				f := frame{kind: kind, nonce: 7, members: digest(ranks), name: "pair"}
				s.control(rma.Envelope{From: 2, Tag: tagControl}, [][]byte{f.bytes()})
			}
			lie(frameJoin)
			pair, errs := make([]*Team, 2), make(chan error, 1)
			go func() {
				var err error
				pair[0], err = New(ctx, es[0], []int{0, 1}, "pair")
				errs <- err
			}()
			testutil.Eventually(t, testutil.Limit, func() bool {
				s.mu.Lock()
				defer s.mu.Unlock()
				f := s.forming["pair"]
				return f == nil || f.over != nil
			}, "the call of rank 0")
			lie(frameReady)
			var err error
			pair[1], err = New(ctx, es[1], []int{0, 1}, "pair")
			require.NoError(t, err)
			require.NoError(t, <-errs)
			each(t, pair, func(_ int, team *Team) error { return conform(ctx, team, 1, 3, 1) })
		})
	}
}

// A rank that has given up a team revokes it when it is told the members, and no other team, whatever a rank tells.
func TestTellsOfATeamThatWasGivenUp(t *testing.T) {
	for _, known := range []bool{true, false} {
		t.Run(fmt.Sprint("members known ", known), func(t *testing.T) {
			t.Parallel()
			es := job(t, 3, "shm")
			ctx := testutil.Context(t, testutil.Limit)
			ts := worlds(t, es)
			by := ts[1].t.s
			mine, theirs := by.reserve("pair"), ts[2].t.s.reserve("pair")
			pair := make([]*Team, 2)
			complete := func(r int, made *team) {
				var err error
				pair[r], err = made.s.complete(made, []int{1, 2}, []uint32{mine.number, theirs.number})
				require.NoError(t, err)
			}
			complete(0, mine)
			if known {
				complete(1, theirs)
			}

			all := []int{0, 1, 2}
			testutil.Holding(&by.mu, func() { by.drop(77, &dropped{all, []int{0, 2}}) })
			tell := func(kind byte, from int, table ...[2]uint32) {
				f := frame{kind: kind, name: "pair", table: table}
				by.control(rma.Envelope{From: from, Tag: tagControl}, [][]byte{f.bytes()})
			}
			for _, kind := range []byte{frameTable, frameFollow} {
				tell(kind, 0, [2]uint32{1, 78}, [2]uint32{2, theirs.number})                  // nothing was given up
				tell(kind, 0, [2]uint32{1, 77}, [2]uint32{2, theirs.number})                  // without the sender
				tell(kind, 0, [2]uint32{0, 5}, [2]uint32{2, theirs.number}, [2]uint32{1, 77}) // not in their order
				tell(kind, 0, slices.Repeat([][2]uint32{{0, 5}, {1, 77}}, 2)...)              // twice
				tell(kind, 1, [2]uint32{0, 5}, [2]uint32{1, 77})                              // not by one that makes it
				tell(kind, 0, [2]uint32{0, 5}, [2]uint32{1, 77}, [2]uint32{2, theirs.number}) // a number of another team
				tell(kind, 0, [2]uint32{0, 5}, [2]uint32{1, 77}, [2]uint32{2, theirs.number}) // again
			}
			require.NoError(t, es[1].Peer(2).SendTag(1, nil).Wait(ctx))
			_, err := es[2].Peer(1).RecvTag(1, nil).Wait(ctx) // behind what that has sent
			require.NoError(t, err)
			if !known {
				complete(1, theirs)
			}
			each(t, pair, func(_ int, team *Team) error { return conform(ctx, team, 1, 3, 1) })

			made := ts[2].t.s.reserve("all")
			if known {
				_, err = made.s.complete(made, all, []uint32{5, 77, made.number})
				require.NoError(t, err)
			}
			tell(frameTable, 2, [2]uint32{0, 5}, [2]uint32{1, 77}, [2]uint32{2, made.number})
			if !known {
				heard := func() bool { made.mu.Lock(); defer made.mu.Unlock(); return made.unknown[1] != nil }
				testutil.Eventually(t, testutil.Limit, heard, "the revocation")
				_, err = made.s.complete(made, all, []uint32{5, 77, made.number})
				require.ErrorIs(t, err, rma.ErrGivenUp)
			}
			testutil.Eventually(t, testutil.Limit, func() bool { return errors.Is(made.with(0).Err(), rma.ErrGivenUp) }, "the revocation")
		})
	}
}

// What is known of teams that were given up is bounded; a call of New leaves it if its team may have been made.
func TestGivenUpIsBounded(t *testing.T) {
	ctx := testutil.Context(t, testutil.Limit)
	es := job(t, 2, "shm")
	s := worlds(t, es)[1].t.s
	calling := func() (f *forming) {
		testutil.Holding(&s.mu, func() {
			if f = s.forming["pair"]; f != nil && f.over == nil {
				f = nil
			}
		})
		return f
	}
	var last uint32
	for _, asked := range []bool{false, true} {
		call, end := context.WithCancel(ctx)
		returned := make(chan error, 1)
		go func() {
			_, err := New(call, es[1], []int{0, 1}, "pair")
			returned <- err
		}()
		var f *forming
		testutil.Eventually(t, testutil.Limit, func() bool { f = calling(); return f != nil }, "the call")
		if asked {
			ask := frame{kind: frameAsk, nonce: f.nonce, name: "pair"}
			s.control(rma.Envelope{From: 0, Tag: tagControl}, [][]byte{ask.bytes()})
		}
		end()
		require.ErrorIs(t, <-returned, context.Canceled)
		last = f.own
		testutil.Holding(&s.mu, func() { require.Equal(t, asked, s.dropped[last] != nil) })
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for range maxDropped {
		require.Contains(t, s.dropped, last)
		s.drop(s.next, &dropped{})
		s.next = s.next%lowBits + 1
	}
	require.Len(t, s.dropped, maxDropped)
	require.NotContains(t, s.dropped, last, "the oldest")
}

// The names of teams that a rank joins, and this one does not, are bounded: a rank that makes
// names up loses its teams here, and the memory is free again.
func TestJoinsAreBounded(t *testing.T) {
	es := job(t, 3, "shm")
	ctx := testutil.Context(t, testutil.Limit)
	ts := worlds(t, es)
	s := ts[0].t.s
	pair := make([]*Team, 2)
	each(t, ts[:2], func(r int, _ *Team) (err error) { pair[r], err = New(ctx, es[r], []int{0, 1}, "pair"); return err })
	join := func(from, i int) {
		f := frame{kind: frameJoin, name: fmt.Sprint("made up ", i)}
		s.control(rma.Envelope{From: from, Tag: tagControl}, [][]byte{f.bytes()})
	}
	forming := func() int { s.mu.Lock(); defer s.mu.Unlock(); return len(s.forming) }
	for i := range maxForming {
		join(2, i)
		join(2, i) // the same
	}
	require.Equal(t, maxForming, forming())
	join(1, maxForming) // another rank may
	require.NoError(t, ts[0].Err())
	join(2, maxForming+1)
	require.ErrorIs(t, ts[0].Err(), ErrProtocol)
	require.Equal(t, 1, forming())
	each(t, pair, func(_ int, team *Team) error { return conform(ctx, team, 1, 3, 1) })
}

// The buffers for messages that a rank has announced are bounded: further messages of that
// rank wait, those of others do not.
func TestBuffersAreBounded(t *testing.T) {
	s := worlds(t, job(t, 2, "shm"))[0].t.s
	r := (*receiver)(s)
	for k, n := range []int{inlineMax, foldMax} {
		m := rma.Envelope{From: 1, Tag: tagData, Len: headerSize + n}
		for range 2 {
			var tokens []any
			for range maxBuffers[k] {
				l := r.Arriving(m, false)
				require.Len(t, l.Buf, m.Len)
				tokens = append(tokens, l.Token)
			}
			require.Equal(t, rma.Landing{Later: true}, r.Arriving(m, false))
			require.True(t, s.stalled)
			other := rma.Envelope{Tag: tagData, Len: headerSize}
			l := r.Arriving(other, false)
			require.Len(t, l.Buf, headerSize)
			r.Arrived(other, l.Token, nil, rma.ErrFlushed)
			for _, b := range tokens {
				r.Arrived(m, b, nil, rma.ErrFlushed)
			}
			require.Equal(t, maxBuffers[k], s.spares[k])
			require.False(t, s.stalled)
		}
	}
	require.True(t, r.Arriving(rma.Envelope{From: 1, Tag: tagData, Len: headerSize + foldMax + 1}, false).Unwanted)
}

// A rank whose headers announce data that never comes costs one goroutine at most, and a
// bounded number of receivers. Data that comes is dropped, and no longer waited for.
func TestDiscardsAreBounded(t *testing.T) {
	es := job(t, 2, "shm")
	ctx := testutil.Context(t, testutil.Limit)
	s := worlds(t, es)[0].t.s
	before := runtime.NumGoroutine()
	waited := func() int { s.drops.mu.Lock(); defer s.drops.mu.Unlock(); return len(s.drops.waited) }
	const n = 300
	for later := range uint32(n) {
		for range 2 { // the second one is the same
			s.discard(es[0].Peer(1), 1+later)
		}
		require.Less(t, runtime.NumGoroutine(), before+n/2)
	}
	require.Equal(t, n, waited())
	idle := func() bool { s.drops.mu.Lock(); defer s.drops.mu.Unlock(); return !s.drops.running }
	testutil.Eventually(t, testutil.Limit, idle, "the receivers")
	for later := range uint32(n) {
		_ = es[1].Peer(0).SendTag(tagPayload|(1+later), make([]byte, 64<<(later%8))).Wait(ctx) // an announced one is refused
	}
	testutil.Eventually(t, testutil.Limit, func() bool { return waited() == 0 }, "the drops")
	testutil.Holding(&s.drops.mu, func() {
		require.Zero(t, s.drops.of[1])
		s.drops.of[1] = maxDiscards
	})
	s.discard(es[0].Peer(1), 1)
	testutil.Holding(&s.drops.mu, func() { require.Empty(t, s.drops.waited, "one too many") })
}

// Data that is waited for to be dropped does not hold up data of another rank with the same
// number: each rank numbers its own.
func TestDiscardsPassOtherRanks(t *testing.T) {
	for _, n := range []int{8 << 10, 1 << 20} { // through the ring, and fetched
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			const later = 5
			es := job(t, 3, "shm")
			ctx := testutil.Context(t, testutil.Limit)
			s := worlds(t, es)[0].t.s
			pair := make([]*Team, 3)
			each(t, pair, func(r int, _ *Team) (err error) {
				if r != 1 {
					pair[r], err = New(ctx, es[r], []int{0, 2}, "pair")
				}
				return err
			})
			announce := func(from int, number uint32) {
				h := header{later: later, bytes: uint64(n), call: call{kind: kindBcast, elem: reflect.Int64, alg: algBinomial, size: 8, root: 1, count: uint64(n / 8)}}
				b := make([]byte, headerSize)
				h.put(b)
				require.NoError(t, es[from].Peer(0).SendTag(tagData|number, b).Wait(ctx))
			}
			announce(1, 99) // there is no such team
			testutil.Eventually(t, testutil.Limit, func() bool {
				s.drops.mu.Lock()
				defer s.drops.mu.Unlock()
				return len(s.drops.waited) == 1 && !s.drops.running
			}, "the receiver that drops")
			require.NoError(t, pair[0].Force("bcast=binomial"))
			got := make([]int64, n/8)
			q := StartBcast(pair[0], 1, got)
			announce(2, pair[2].t.numbers[0])
			testutil.Eventually(t, testutil.Limit, func() bool { return fetches(pair[0].t) }, "the receive behind it")
			es[2].Peer(0).SendFunc(tagPayload|later, bytesOf(input(1, 2, n/8)), nil)
			require.NoError(t, q.Wait(ctx))
			require.Equal(t, input(1, 2, n/8), got)
			testutil.Holding(&s.drops.mu, func() { require.Len(t, s.drops.waited, 1) })
		})
	}
}

// fetches reports whether an operation of a team has a receive in flight.
func fetches(t *team) bool {
	t.mu.Lock()
	ops := slices.Collect(maps.Values(t.ops))
	t.mu.Unlock()
	for _, o := range ops {
		o.mu.Lock()
		for i := range o.state {
			if o.state[i].recv != (rma.RecvRequest{}) {
				defer o.mu.Unlock()
				return true
			}
		}
		o.mu.Unlock()
	}
	return false
}

// A first rank that sends no times, or processors that it cannot have, ends the team: nobody
// chooses by them.
func TestLiesAboutFigures(t *testing.T) {
	for name, lie := range map[string]struct {
		at    int
		value float64
	}{
		"no number": {7, math.NaN()}, "before": {9, -1}, "no end": {costNumbers - 1, math.Inf(1)},
		"no processor": {costNumbers, 0}, "too many processors": {costNumbers, 3}, "none at all": {costNumbers, math.NaN()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			es := job(t, 2, "shm")
			ctx := testutil.Context(t, testutil.Limit)
			ts := worlds(t, es)
			p := sampling.Defaults("shm")
			numbers := make([]float64, costNumbers+1)
			costsOf(&p, true, memoryRates{}).put(numbers)
			numbers[costNumbers] = 2
			numbers[lie.at] = lie.value
			send := func(seq uint32, c call, data []byte) {
				h := header{tag: figuresTag, seq: seq, call: c, bytes: uint64(len(data))}
				b := make([]byte, headerSize)
				h.put(b)
				require.NoError(t, es[0].Peer(1).SendTag(tagData, append(b, data...)).Wait(ctx))
			}
			q := StartAllreduce(ts[1], nil, []int64{1}, Sum)
			send(0, call{kind: kindBcast, elem: reflect.Float64, alg: algBinomial, size: 8, count: costNumbers + 1}, bytesOf(numbers))
			send(1, call{kind: kindAllgather, elem: reflect.Uint8, alg: algDissemination, size: 1, count: boardKeys}, make([]byte, boardKeys))
			err := q.Wait(ctx)
			require.ErrorIs(t, err, ErrRevoked)
			require.ErrorIs(t, err, ErrProtocol)
			var pe *rma.PeerError
			require.ErrorAs(t, err, &pe)
			require.Equal(t, 0, pe.Rank)
		})
	}
}

// A rank that brings no number of a team to a Split fails it on the others.
func TestSplitLies(t *testing.T) {
	ctx := testutil.Context(t, testutil.Limit)
	for _, number := range []int64{-1, 0, lowBits + 1} {
		ts := worlds(t, job(t, 2, "shm"))
		each(t, ts, func(r int, team *Team) error {
			if r == 1 {
				return errors.Join(Allgather(ctx, team, []int64{0, 0, number}, make([]int64, 6)), Barrier(ctx, team))
			}
			sub, err := team.Split(ctx, 0, 0)
			if pe := (*rma.PeerError)(nil); sub != nil || !errors.Is(err, ErrProtocol) || !errors.As(err, &pe) || pe.Rank != 1 {
				return fmt.Errorf("number %d: %v, %w", number, sub, err)
			}
			return nil
		})
		each(t, ts, func(_ int, team *Team) error { return conform(ctx, team, 1, 3, 1) })
	}
}
