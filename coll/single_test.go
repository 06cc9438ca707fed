package coll

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/internal/jobtest"
	"github.com/seed33544411/rma/internal/onesided"
	"github.com/seed33544411/rma/internal/testutil"
)

var bySingle = strings.ReplaceAll(strings.TrimPrefix(byShared, "barrier=shared,"), "shared", "single")

// reading returns the teams of all ranks, which read each other's memory.
func reading(t testing.TB, es []*rma.Engine) []*Team {
	t.Helper()
	ctx := testutil.Context(t, testutil.Limit)
	ts := worlds(t, es)
	each(t, ts, func(_ int, team *Team) error { return settled(ctx, team, bySingle) })
	require.True(t, ts[0].t.told.Load().boards.single)
	return ts
}

// Operations by single copies, of ranks that start and wait for them in all ways, beside those by
// flags, by shared memory and by messages, have the results of a serial reference.
func TestSingle(t *testing.T) {
	for p, also := range map[int]string{2: "", 3: ",gather=shared,allgather=shared", 7: ""} {
		t.Run(fmt.Sprint(p), func(t *testing.T) {
			t.Parallel()
			ts, ctx := reading(t, job(t, p, "shm")), testutil.Context(t, testutil.Limit)
			each(t, ts, func(_ int, team *Team) error { return errors.Join(Barrier(ctx, team), team.Force(bySingle+also)) })
			mixOperations(t, ts, bySingle+also)
		})
	}
}

// Calls may return only when the others have read their memory, of the heap or of a region that they
// map: each overwrites it at once.
func TestSingleReturns(t *testing.T) {
	ctx := testutil.Context(t, testutil.Limit)
	es := job(t, 3, "shm")
	each(t, reading(t, es), func(r int, team *Team) error {
		const n = 9000
		region, err := es[r].Alloc(9 * n * 8)
		if err != nil {
			return err
		}
		mapped, _ := elementsOf[int64](region.Bytes())
		for i := range 20 {
			root := i % 3
			one, all := input(uint64(i), r, n), input(uint64(i), r, 3*n)
			sum, parts, got := make([]int64, n), make([]int64, 3*n), make([]int64, n)
			if i%2 == 1 {
				for k, b := range []*[]int64{&one, &sum, &got, &all, &parts} {
					at := []int{0, 1, 2, 3, 6}[k] * n
					*b = mapped[at : at+copy(mapped[at:], *b)]
				}
			}
			err := Allreduce(ctx, team, one, sum, Sum)
			clear(one)
			err = errors.Join(err, equals("allreduce", want(uint64(i), 0, 3, n, input, add), sum))
			err = errors.Join(err, Alltoall(ctx, team, all, parts))
			clear(all)
			for s := range 3 {
				err = errors.Join(err, equals("alltoall", input(uint64(i), s, 3*n)[r*n:(r+1)*n], parts[s*n:(s+1)*n]))
			}
			copy(all, input(uint64(i), root, 3*n))
			err = errors.Join(err, Scatter(ctx, team, root, all, got))
			clear(all)
			err = errors.Join(err, equals("scatter", input(uint64(i), root, 3*n)[r*n:(r+1)*n], got))
			if err = errors.Join(err, Gather(ctx, team, root, got, parts)); r == root {
				err = errors.Join(err, equals("gather", input(uint64(i), root, 3*n), parts))
			}
			clear(got)
			if r == root {
				copy(got, input(uint64(i), root, n))
			}
			err = errors.Join(err, Bcast(ctx, team, root, got), equals("bcast", input(uint64(i), root, n), got))
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// Operations by single copies end when one is given up, and when a rank is gone.
func TestSingleEnd(t *testing.T) {
	large := make([]int64, 1<<17)
	endBoards(t, reading, func(team *Team) (first, second *Request) {
		return StartAllreduce(team, nil, large, Sum), StartBcast(team, 0, large)
	})
}

// Calls that differ fail on all ranks.
func TestSingleMismatch(t *testing.T) {
	ctx := testutil.Context(t, testutil.Limit)
	each(t, reading(t, job(t, 3, "shm")), func(r int, team *Team) error {
		n := 10000 + r/2
		err := Allgather(ctx, team, make([]int64, n), make([]int64, 3*n))
		if m := (*MismatchError)(nil); !errors.As(err, &m) {
			return fmt.Errorf("%v", err)
		}
		return nil
	})
}

// An address that is none of the peer's fails the read, and revokes the team: one that no process
// has, one behind which the peer has no memory, and one that overflows.
func TestSingleLies(t *testing.T) {
	for _, at := range []uint64{0, 64, 1 << 47, 1<<64 - 8} {
		t.Run(fmt.Sprintf("%#x", at), func(t *testing.T) {
			findsLie(t, reading(t, job(t, 2, "shm")), 1, make([]int64, 1000), at)
		})
	}
}

// An address that is none of the peer's fails a write as well.
func TestSingleWriteLies(t *testing.T) {
	for _, at := range []uint64{64, 1 << 47, 1<<64 - 8} {
		t.Run(fmt.Sprintf("%#x", at), func(t *testing.T) {
			findsLie(t, writing(t, job(t, 2, "shm")), 0, input(1, 0, 5000), at)
		})
	}
}

// findsLie has rank 0 broadcast buf with rank 1, which says that its memory is at that address.
func findsLie(t *testing.T, ts []*Team, root int, buf []int64, at uint64) {
	ctx, want := testutil.Context(t, testutil.Limit), slices.Clone(buf)
	b := ts[0].t.board
	next := b.over.Load() + 1
	line := b.came[b.area.lineOf(1, next):][:tellSize]
	c := call{kind: kindBcast, alg: algSingle, root: uint32(root), count: uint64(len(buf)), size: 8}
	e, err := elementOf[int64]()
	require.NoError(t, err)
	c.elem = e.kind
	c.put(line)
	onesided.Store64(line[shownAt:], at)
	onesided.Store64(line[tellSize-8:], next<<tellBits|1)
	err = Bcast(ctx, ts[0], root, buf)
	require.ErrorIs(t, err, ErrRevoked)
	var pe *rma.PeerError
	require.ErrorAs(t, err, &pe)
	require.Equal(t, 1, pe.Rank)
	require.Equal(t, want, buf)
}

// writing is reading, of ranks that have processors of their own, or believe so, and write to each other's memory.
func writing(t testing.TB, es []*rma.Engine) []*Team {
	ts := reading(t, es)
	for _, team := range ts {
		believeApart(team)
		require.True(t, team.t.told.Load().apart(len(ts)))
	}
	return ts
}

// believeApart has a rank believe that the ranks of its team have processors of their own.
func believeApart(team *Team) {
	f := *team.t.told.Load()
	f.procs = 0
	team.t.told.Store(&f)
	team.t.figures.Store(&f)
}

// Operations in which ranks write to each other's memory, one behind the other from roots that change, have the
// results of a serial reference.
func TestSingleWritten(t *testing.T) {
	for _, p := range []int{2, 3, 5} {
		t.Run(fmt.Sprint(p), func(t *testing.T) {
			t.Parallel()
			ts, ctx := writing(t, job(t, p, "shm")), testutil.Context(t, testutil.Limit)
			each(t, ts, func(r int, team *Team) error {
				for i, n := range []int{sharedFrom / 8, sharedFrom/8 + 1, writtenFrom / 8, writtenPiece/8 + 1, 1, 3*writtenPiece/8 + 77} {
					root, seed := i%p, uint64(i)
					data, all := input(seed, r, n), make([]int64, p*n)
					var gathered []int64
					for from := range p {
						gathered = append(gathered, input(seed, from, n)...)
					}
					err := errors.Join(Allgather(ctx, team, data, all), equals("allgather", gathered, all))
					clear(all)
					copy(all[r*n:], data)
					err = errors.Join(err, Allgather(ctx, team, nil, all), equals("allgather in place", gathered, all))
					clear(all)
					if err = errors.Join(err, Gather(ctx, team, root, data, all)); r == root {
						err = errors.Join(err, equals("gather", gathered, all))
					}
					err = errors.Join(err, Bcast(ctx, team, root, data), equals("bcast", input(seed, root, n), data))
					if err != nil {
						return err
					}
				}
				return nil
			})
			steps := 0
			for _, pl := range ts[0].t.plans.kept {
				for _, s := range pl.s.steps {
					if s.kind == stepWrite {
						steps++
					}
				}
			}
			require.Positive(t, steps)
		})
	}
}

// A call that has failed keeps its memory while another rank writes to it, and a rank does not write to what has been
// taken back.
func TestSingleWriteWithdrawn(t *testing.T) {
	ctx := testutil.Context(t, testutil.Limit)
	ts := writing(t, job(t, 2, "shm"))
	a, b := ts[0].t.board, ts[1].t.board
	next := b.over.Load() + 1
	b.mu.Lock()
	b.patience = testutil.Limit
	b.mu.Unlock()
	q := StartBcast(ts[1], 0, make([]int64, 5000))
	word := b.came[b.area.lineOf(0, next)+writingAt:]
	testutil.Holding(&a.mu, func() {
		require.True(t, a.told(1, next, next<<tellBits|1), "shown")
		onesided.Store64(word, 1) // as if rank 0 were writing
	})
	q.Cancel()
	require.False(t, q.Done())
	testutil.Holding(&a.mu, func() {
		mem, o := a.area.mems[1], &operation{flag: next}
		require.False(t, a.told(1, next, next<<tellBits|1), "taken back")
		if mem != nil {
			_, ok := a.write(o, &step{peer: 1, slot: 1})
			require.False(t, ok)
		}
	})
	require.Zero(t, onesided.Load64(word))
	require.ErrorIs(t, q.Wait(ctx), ErrRevoked)
	require.ErrorIs(t, Bcast(ctx, ts[0], 0, make([]int64, 5000)), ErrRevoked)
}

// A rank that gives up takes back what it has shown: who reads then does not take what it has read
// for the result.
func TestSingleWithdrawn(t *testing.T) {
	ctx := testutil.Context(t, testutil.Limit)
	ts := reading(t, job(t, 2, "shm"))
	data := input(1, 0, 1000)
	q := StartBcast(ts[0], 0, data)
	b := ts[1].t.board
	next := b.over.Load() + 1
	testutil.Holding(&b.mu, func() { require.True(t, b.told(0, next, next<<tellBits|1), "shown") })
	q.Cancel()
	require.ErrorIs(t, q.Wait(ctx), ErrRevoked)
	testutil.Holding(&b.mu, func() { require.False(t, b.told(0, next, next<<tellBits|1), "and taken back") })
	require.ErrorIs(t, Bcast(ctx, ts[1], 0, make([]int64, 1000)), ErrRevoked)
}

// Ranks that may not read each other's memory use other algorithms.
func TestSingleNotPossible(t *testing.T) {
	ctx := testutil.Context(t, testutil.Limit)
	ts := worlds(t, jobtest.Open(t, 3, "shm", func(c *rma.Config) { c.Settings = map[string]string{"disable_cma": "1"} }))
	each(t, ts, func(r int, team *Team) error {
		sum := input(5, r, 10000)
		return errors.Join(team.Force(bySingle), Allreduce(ctx, team, nil, sum, Sum), equals("sum", want(5, 0, 3, 10000, input, add), sum))
	})
	f := ts[0].t.told.Load()
	require.True(t, f.boards.shared)
	require.False(t, f.boards.single)
	a, _, err := ts[0].Choice("allreduce", 1<<20)
	require.NoError(t, err)
	require.NotEqual(t, "single", a)
}
