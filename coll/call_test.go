package coll

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/internal/testutil"
)

// worlds returns the teams of all ranks.
func worlds(t testing.TB, es []*rma.Engine) []*Team {
	t.Helper()
	ts := make([]*Team, len(es))
	for r, e := range es {
		var err error
		ts[r], err = World(e)
		require.NoError(t, err)
	}
	return ts
}

// settled forces algorithms, meets the other ranks, and waits for the figures of the team. The barrier, which asks for
// them, may complete first: operations that are started before they are there begin a little later, in another goroutine.
func settled(ctx context.Context, team *Team, force string) error {
	err := errors.Join(team.Force(force), Barrier(ctx, team))
	for err == nil && team.t.figures.Load() == nil {
		runtime.Gosched()
		err = ctx.Err()
	}
	return err
}

// each calls f for every rank of a team, at the same time.
func each(t testing.TB, ts []*Team, f func(r int, t *Team) error) {
	t.Helper()
	var g errgroup.Group
	for r, team := range ts {
		g.Go(func() error {
			if err := f(r, team); err != nil {
				return fmt.Errorf("rank %d: %w", r, err)
			}
			return nil
		})
	}
	require.NoError(t, g.Wait())
}

// input returns elements of a rank, small so that sums of them are exact.
func input(seed uint64, rank, n int) []int64 {
	g := rand.New(rand.NewPCG(seed, uint64(rank)))
	out := make([]int64, n)
	for i := range out {
		out[i] = g.Int64N(1000) - 300
	}
	return out
}

// affine is x → a·x + b, whose composition is associative and not commutative, unless both have the same
// fixed point: those of affines differ.
type affine struct{ A, B uint32 }

// compose sets dst to dst, then src.
func compose(dst, src []affine) {
	for i := range dst {
		dst[i] = affine{dst[i].A * src[i].A, dst[i].B*src[i].A + src[i].B}
	}
}

func affines(seed uint64, rank, n int) []affine {
	out := make([]affine, n)
	for i, v := range input(seed, rank, n) {
		out[i] = affine{uint32(v)*2 + 1, uint32(v)*uint32(v) + 1}
	}
	return out
}

// want combines the inputs of ranks lo to hi-1.
func want[T any](seed uint64, lo, hi, n int, in func(uint64, int, int) []T, combine func(dst, src []T)) []T {
	acc := in(seed, lo, n)
	for r := lo + 1; r < hi; r++ {
		combine(acc, in(seed, r, n))
	}
	return acc
}

func add(dst, src []int64) {
	for i := range dst {
		dst[i] += src[i]
	}
}

// equals returns an error if got is not want.
func equals[T comparable](what string, want, got []T) error {
	if len(want) != len(got) {
		return fmt.Errorf("%s: %d elements, want %d", what, len(got), len(want))
	}
	for i := range want {
		if want[i] != got[i] {
			return fmt.Errorf("%s: element %d of %d is %v, want %v", what, i, len(want), got[i], want[i])
		}
	}
	return nil
}

// conform performs every operation once with n elements and compares it with a serial
// reference. All ranks of the team call it with the same arguments.
func conform(ctx context.Context, t *Team, root, n int, seed uint64) error {
	me, p := t.Rank(), t.Size()
	in := func(seed uint64, r int) []int64 { return input(seed, r, n) }
	checks := []struct {
		name string
		f    func(s uint64) (want, got []int64, err error)
	}{
		{"bcast", func(s uint64) (_, _ []int64, err error) {
			buf := make([]int64, n)
			if me == root {
				copy(buf, in(s, root))
			}
			return in(s, root), buf, Bcast(ctx, t, root, buf)
		}},
		{"reduce", func(s uint64) ([]int64, []int64, error) {
			w, got := make([]int64, n), make([]int64, n)
			if me == root {
				w = want(s, 0, p, n, input, add)
			}
			return w, got, Reduce(ctx, t, root, in(s, me), got, Sum)
		}},
		{"reduce in place", func(s uint64) ([]int64, []int64, error) {
			w, got := in(s, me), in(s, me)
			if me == root {
				w = want(s, 0, p, n, input, add)
			}
			return w, got, Reduce(ctx, t, root, nil, got, Sum)
		}},
		{"allreduce", func(s uint64) ([]int64, []int64, error) {
			got := make([]int64, n)
			return want(s, 0, p, n, input, add), got, Allreduce(ctx, t, in(s, me), got, Sum)
		}},
		{"allreduce in place", func(s uint64) ([]int64, []int64, error) {
			got := in(s, me)
			return want(s, 0, p, n, input, add), got, Allreduce(ctx, t, got, got, Func(add))
		}},
		{"reduce-scatter", func(s uint64) ([]int64, []int64, error) {
			got := make([]int64, n)
			return want(s, 0, p, n*p, input, add)[me*n : (me+1)*n], got, ReduceScatter(ctx, t, input(s, me, n*p), got, Sum)
		}},
		{"reduce-scatter with lengths", func(s uint64) ([]int64, []int64, error) {
			got, at := make([]int64, n+me%3), 0
			var mine int
			var lens []int
			for r := range p {
				if r == me {
					mine = at
				}
				lens = append(lens, n+r%3)
				at += n + r%3
			}
			return want(s, 0, p, at, input, add)[mine : mine+len(got)], got, ReduceScatterv(ctx, t, cut(input(s, me, at), lens), got, Sum)
		}},
		{"gather", func(s uint64) (w, got []int64, _ error) {
			if me == root {
				got = make([]int64, n*p)
				for r := range p {
					w = append(w, in(s, r)...)
				}
			}
			return w, got, Gather(ctx, t, root, in(s, me), got)
		}},
		{"gather with lengths, in place", func(s uint64) (w, got []int64, _ error) {
			var lens []int
			for r := range p {
				lens = append(lens, (n+r)%(n+2))
				if me == root {
					w = append(w, input(s, r, lens[r])...)
				}
			}
			send := input(s, me, lens[me])
			if me != root {
				return nil, nil, Gatherv(ctx, t, root, send, nil)
			}
			got = make([]int64, len(w))
			blocks := cut(got, lens)
			copy(blocks[me], send)
			return w, got, Gatherv(ctx, t, root, nil, blocks)
		}},
		{"scatter", func(s uint64) ([]int64, []int64, error) {
			var send []int64
			if me == root {
				send = input(s, root, n*p)
			}
			got := make([]int64, n)
			return input(s, root, n*p)[me*n : (me+1)*n], got, Scatter(ctx, t, root, send, got)
		}},
		{"scatter with lengths", func(s uint64) ([]int64, []int64, error) {
			var lens []int
			at, mine := 0, 0
			for r := range p {
				if r == me {
					mine = at
				}
				lens = append(lens, (n+r)%(n+2))
				at += lens[r]
			}
			var send [][]int64
			if me == root {
				send = cut(input(s, root, at), lens)
			}
			got := make([]int64, lens[me])
			return input(s, root, at)[mine : mine+lens[me]], got, Scatterv(ctx, t, root, send, got)
		}},
		{"allgather", func(s uint64) (w, _ []int64, _ error) {
			for r := range p {
				w = append(w, in(s, r)...)
			}
			got := make([]int64, n*p)
			return w, got, Allgather(ctx, t, in(s, me), got)
		}},
		{"allgather with lengths, in place", func(s uint64) (w, _ []int64, _ error) {
			var lens []int
			for r := range p {
				lens = append(lens, (n+r)%(n+2))
				w = append(w, input(s, r, lens[r])...)
			}
			got := make([]int64, len(w))
			blocks := cut(got, lens)
			copy(blocks[me], input(s, me, lens[me]))
			return w, got, Allgatherv(ctx, t, nil, blocks)
		}},
		{"alltoall", func(s uint64) (w, _ []int64, _ error) {
			for r := range p {
				w = append(w, input(s, r, n*p)[me*n:(me+1)*n]...)
			}
			got := make([]int64, n*p)
			return w, got, Alltoall(ctx, t, input(s, me, n*p), got)
		}},
		{"alltoall in place", func(s uint64) (w, _ []int64, _ error) {
			for r := range p {
				w = append(w, input(s, r, n*p)[me*n:(me+1)*n]...)
			}
			got := input(s, me, n*p)
			return w, got, Alltoall(ctx, t, nil, got)
		}},
		{"alltoall with lengths", func(s uint64) (w, _ []int64, _ error) {
			length := func(from, to int) int { return (n + from + 3*to) % (n + 2) }
			var lens []int
			var send [][]int64
			for r := range p {
				lens = append(lens, length(r, me))
				w = append(w, input(s+uint64(me), r, length(r, me))...)
				send = append(send, input(s+uint64(r), me, length(me, r)))
			}
			got := make([]int64, len(w))
			return w, got, Alltoallv(ctx, t, send, cut(got, lens))
		}},
		{"scan", func(s uint64) ([]int64, []int64, error) {
			got := in(s, me)
			return want(s, 0, me+1, n, input, add), got, Scan(ctx, t, nil, got, Sum)
		}},
		{"exscan", func(s uint64) ([]int64, []int64, error) {
			got := in(s, me)
			w := in(s, me)
			if me > 0 {
				w = want(s, 0, me, n, input, add)
			}
			return w, got, Exscan(ctx, t, nil, got, Sum)
		}},
	}
	for i, c := range checks {
		w, got, err := c.f(seed + uint64(i)*1000)
		if err == nil {
			err = equals(c.name, w, got)
		}
		if err != nil {
			return fmt.Errorf("%s of %d from %d among %d: %w", c.name, n, root, p, err)
		}
	}
	got := affines(seed, me, n)
	if err := Reduce(ctx, t, root, got, got, FuncInOrder(compose)); err != nil {
		return err
	}
	w := affines(seed, me, n)
	if me == root {
		w = want(seed, 0, p, n, affines, compose)
	}
	if err := equals("reduce in order", w, got); err != nil {
		return err
	}
	got = affines(seed, me, n)
	if err := Allreduce(ctx, t, nil, got, FuncInOrder(compose)); err != nil {
		return err
	}
	if err := equals("allreduce in order", want(seed, 0, p, n, affines, compose), got); err != nil {
		return err
	}
	if err := Scan(ctx, t, affines(seed, me, n), got, FuncInOrder(compose)); err != nil {
		return err
	}
	if err := equals("scan in order", want(seed, 0, me+1, n, affines, compose), got); err != nil {
		return err
	}
	if err := ReduceScatter(ctx, t, affines(seed, me, n*p), got, FuncInOrder(compose)); err != nil {
		return err
	}
	if err := equals("reduce-scatter in order", want(seed, 0, p, n*p, affines, compose)[me*n:(me+1)*n], got); err != nil {
		return err
	}
	return Barrier(ctx, t)
}

// cut divides s into blocks.
func cut[T any](s []T, lens []int) (out [][]T) {
	for _, n := range lens {
		out = append(out, s[:n:n])
		s = s[n:]
	}
	return out
}

// Every operation has the result of a serial reference, for any number of ranks and root,
// with the algorithms that are chosen and with others.
func TestConformance(t *testing.T) {
	testutil.EachLink(t, func(t *testing.T, fabric string) {
		for p := 1; p <= 8; p++ {
			t.Run(fmt.Sprint(p), func(t *testing.T) {
				ts := worlds(t, job(t, p, fabric))
				ctx := testutil.Context(t, testutil.Limit)
				for _, n := range []int{0, 1, 7, 600} {
					each(t, ts, func(_ int, team *Team) error { return conform(ctx, team, n%p, n, uint64(n)) })
				}
				for i, f := range []string{
					"bcast=chain,reduce=chain,allreduce=halving,allgather=ring,alltoall=linear,gather=linear,scatter=linear,reducescatter=linear",
					"bcast=scatter,reduce=scatter,allreduce=ring,allgather=linear,allgatherv=ring,reducescatter=doubling,reducescatterv=linear",
					"barrier=linear,allreduce=linear,bcast=circulant,reduce=circulant,gather=3-nomial,scatter=4-nomial",
				} {
					for _, team := range ts {
						require.NoError(t, team.Force(f)) // no operation is in flight
					}
					for _, n := range []int{3, 1100} {
						each(t, ts, func(_ int, team *Team) error { return conform(ctx, team, (p-1)/(i+1), n, uint64(n)) })
					}
				}
			})
		}
	})
}

// Large messages, by each algorithm of the operations that pass them on.
func TestLarge(t *testing.T) {
	testutil.EachLink(t, func(t *testing.T, fabric string) {
		const p = 3
		n := 1 << 19 / testutil.Slow() // 4 MiB
		ts := worlds(t, job(t, p, fabric))
		ctx := testutil.Context(t, testutil.Limit)
		for _, alg := range []algorithm{algBinomial, algTree3, algChain, algScatter, algCirculant, algDoubling, algHalving, algRing, algLinear} {
			for _, team := range ts {
				team.t.s.force = map[kind]algorithm{kindBcast: alg, kindAllreduce: alg, kindReduce: alg}
			}
			each(t, ts, func(r int, team *Team) error {
				got := input(7, r, n)
				if err := Allreduce(ctx, team, nil, got, Sum); err != nil {
					return err
				}
				w := want(7, 0, p, n, input, add)
				if err := equals(alg.String(), w, got); err != nil {
					return err
				}
				clear(got)
				if err := Allreduce(ctx, team, input(7, r, n), got, Sum); err != nil {
					return err
				}
				if err := equals(alg.String()+" not in place", w, got); err != nil {
					return err
				}
				got = input(7, r, n)
				if err := Reduce(ctx, team, 1, nil, got, Sum); err != nil {
					return err
				}
				if err := Bcast(ctx, team, 1, got); err != nil {
					return err
				}
				return equals(alg.String(), w, got)
			})
		}
	})
}

// Data of reductions that travels with its header in one message or in several, up to the
// largest that does so.
func TestFolds(t *testing.T) {
	testutil.EachLink(t, func(t *testing.T, fabric string) {
		ts := worlds(t, job(t, 3, fabric))
		ctx := testutil.Context(t, testutil.Limit)
		for _, n := range []int{inlineMax/8 + 1, foldMax / 8, foldMax/8 + 1, foldTotal / 8, foldTotal/8 + 1} {
			each(t, ts, func(_ int, team *Team) error {
				for range testutil.Times(3) {
					if err := conform(ctx, team, 1, n, 1); err != nil {
						return err
					}
				}
				return nil
			})
		}
	})
}

// Seventeen ranks, which is not a power of two and exceeds the processors of most hosts.
func TestManyRanks(t *testing.T) {
	ts := worlds(t, job(t, 17, "shm"))
	ctx := testutil.Context(t, testutil.Limit)
	for _, n := range []int{1, 600} {
		each(t, ts, func(_ int, team *Team) error { return conform(ctx, team, 11, n, 1) })
	}
}

// The setting that forces algorithms is checked.
func TestForced(t *testing.T) {
	f, err := parseForced("Allreduce=ring, bcast=chain scan=auto")
	require.NoError(t, err)
	require.Equal(t, map[kind]algorithm{kindAllreduce: algRing, kindBcast: algChain, kindScan: algAuto}, f)
	for _, bad := range []string{"allreduce", "allreduce=chain", "=ring", "fold=ring", "bcast=fast"} {
		_, err := parseForced(bad)
		require.ErrorIs(t, err, ErrInvalid, bad)
	}
	for list, want := range map[string]string{
		"scan=ring":        `"scan=ring": Scan has no algorithm "ring": want auto, dissemination or hierarchy`,
		"gatherv=5-nomial": `Gatherv has no algorithm "5-nomial": want auto, linear or hierarchy`,
		"Barrier=":         `Barrier has no algorithm "": want auto, dissemination, linear, flags, shared or hierarchy`,
		"fold=ring":        `there is no operation "fold": want barrier, bcast, reduce, allreduce, reducescatter, reducescatterv, gather, gatherv, scatter, scatterv, allgather, allgatherv, alltoall, alltoallv, scan or exscan`,
		"bcast=chain,scan": `"scan" is not operation=algorithm, such as allreduce=ring`,
	} {
		_, err := parseForced(list)
		require.ErrorContains(t, err, want)
	}
	t.Setenv(envAlgorithm, "bcast=fast")
	_, err = World(job(t, 1, "shm")[0])
	require.ErrorIs(t, err, ErrInvalid)
	require.ErrorContains(t, err, envAlgorithm)
}

// The algorithm is the one that is predicted to be the fastest, for two ranks as for more.
func TestChoice(t *testing.T) {
	for _, p := range []int{2, 3} {
		ts := worlds(t, job(t, p, "shm"))
		ctx := testutil.Context(t, testutil.Limit)
		each(t, ts, func(_ int, team *Team) error { return Bcast(ctx, team, 0, make([]byte, 8)) })
		for _, op := range []string{"bcast", "reduce", "allreduce", "gather", "alltoall"} {
			for _, n := range []int{8, 1 << 20} {
				alg, ps, err := ts[0].Choice(op, n)
				require.NoError(t, err)
				require.NotEmpty(t, ps)
				require.Equal(t, ps[0].Algorithm, alg, "%s of %d bytes by %d ranks", op, n, p)
			}
		}
	}
}

// A team uses the algorithms that it is made to use, whatever the setting says, and those
// that are chosen where it is not. The choice is known without an operation if it is forced.
func TestForce(t *testing.T) {
	t.Setenv(envAlgorithm, "allreduce=halving,bcast=chain")
	ts := worlds(t, job(t, 3, "shm"))
	ctx := testutil.Context(t, testutil.Limit)
	uses := func(op string, bytes int) string {
		alg, _, err := ts[1].Choice(op, bytes)
		require.NoError(t, err)
		return alg
	}
	all := func(force string) {
		t.Helper()
		for _, team := range ts {
			require.NoError(t, team.Force(force))
		}
		each(t, ts, func(r int, team *Team) error {
			sum := []float64{float64(r)}
			if err := Allreduce(ctx, team, nil, sum, Sum); err != nil {
				return err
			}
			return equals(force, []float64{3}, sum)
		})
	}
	require.Equal(t, "halving", uses("allreduce", 8))
	all("allreduce=ring")
	require.Equal(t, "ring", uses("allreduce", 8))
	require.Equal(t, "chain", uses("bcast", 8))
	require.Empty(t, uses("gather", 8), "there are no figures yet")
	all("allreduce=auto,bcast=scatter")
	require.Equal(t, "scatter", uses("bcast", 8))
	for _, n := range []int{8, 1 << 20} {
		alg, ps, err := ts[2].Choice("allreduce", n)
		require.NoError(t, err)
		algs := 6
		if n == 8 {
			algs++ // flags
		}
		require.Len(t, ps, algs)
		require.Equal(t, ps[0].Algorithm, alg, "sizes of a class's first byte")
		require.Positive(t, ps[0].NS)
	}
	all("")
	require.Equal(t, "halving", uses("allreduce", 8))
	require.ErrorIs(t, ts[0].Force("allreduce=chain"), ErrInvalid)
	_, _, err := ts[0].Choice("fold", 8)
	require.ErrorIs(t, err, ErrInvalid)
}
