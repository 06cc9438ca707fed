package coll

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/internal/jobtest"
	"github.com/seed33544411/rma/internal/testutil"
)

func TestDivide(t *testing.T) {
	require.Nil(t, divide([]int{3}))
	require.Nil(t, divide([]int{3, 3, 3}), "one host")
	require.Nil(t, divide([]int{3, 1, 2}), "one rank on each")
	require.Equal(t, &hosts{[]int{0, 0, 1}, [][]int{{0, 1}, {2}}, true}, divide([]int{7, 7, 1}))
	h := divide([]int{5, 0, 5, 0, 2})
	require.Equal(t, &hosts{[]int{0, 1, 0, 1, 2}, [][]int{{0, 2}, {1, 3}, {4}}, false}, h)
	require.Equal(t, []int{2, 1, 4}, h.leaders(2))
	require.True(t, h.serves(call{kind: kindReduce, op: opFunc}))
	require.False(t, h.serves(call{kind: kindScan, op: opSum}))
	require.True(t, divide([]int{7, 7, 1}).serves(call{kind: kindExscan, op: opFuncInOrder}))
	require.False(t, h.serves(call{kind: kindReduce, op: opFuncInOrder}))
	require.True(t, h.serves(call{kind: kindAllgather, size: 8, count: packLimit}))
	require.True(t, h.serves(call{kind: kindAlltoall, size: 8, count: packLimit/8 - 1}))
	require.False(t, h.serves(call{kind: kindAlltoall, size: 8, count: packLimit / 8}))
	require.True(t, h.serves(call{kind: kindGatherv, size: 8, count: recordMax / 8}))
	require.False(t, h.serves(call{kind: kindScatterv, size: 8, count: recordMax/8 + 1}))
	require.NotEqual(t, class(packLimit-1), class(packLimit), "no class has sizes of both kinds")
	require.Equal(t, packLimit, bytesOfClass(class(packLimit)))
}

// Leaders of large teams do not need any amount of memory.
func TestHaveRoom(t *testing.T) {
	team := &team{s: &service{}}
	for _, x := range []struct {
		ranks, hosts, bytes int
		kind                kind
		want                algorithm
	}{
		{128, 2, 8, kindAlltoall, algHierarchy},
		{128, 2, packLimit - 1, kindAlltoall, algLinear},
		{1024, 32, 8, kindAlltoall, algHierarchy},
		{1024, 4, 4 << 10, kindAlltoall, algDissemination},
		{1024, 32, 0, kindAlltoallv, algHierarchy},
		{4096, 32, 0, kindAlltoallv, algLinear},
		{4096, 32, 8, kindGather, algHierarchy},
	} {
		numbers := make([]int, x.ranks)
		for r := range numbers {
			numbers[r] = r * x.hosts / x.ranks
		}
		team.hosts = divide(numbers)
		a, ok := team.chooseBy(nil, &problem{call: call{kind: x.kind, size: 1, count: uint64(x.bytes)}, team: x.ranks}, 0)
		require.True(t, ok)
		require.Equal(t, x.want, a, "%v of %d bytes by %d ranks on %d hosts", x.kind, x.bytes, x.ranks, x.hosts)
	}
}

// crossings returns the messages, and their bytes, that each host sends to others in an
// operation.
func crossings(c call, h *hosts) (messages, bytes []int) {
	messages, bytes = make([]int, len(h.ranks)), make([]int, len(h.ranks))
	for r := range h.of {
		s := build(problemOf(c, r, len(h.of), int(c.count), h))
		for _, st := range s.steps {
			if st.kind == stepSend && h.of[st.peer] != h.of[r] {
				messages[h.of[r]]++
				bytes[h.of[r]] += st.from.n
			}
		}
	}
	return messages, bytes
}

// Data crosses the link of a host once in each direction in which it has to, in one message
// if it is small.
func TestCrossings(t *testing.T) {
	for name, h := range map[string]*hosts{
		"adjacent": divide([]int{0, 0, 0, 0, 0, 1, 1, 1, 1, 1}),
		"by turns": divide([]int{0, 1, 0, 1, 0, 1, 0, 1, 0, 1}),
	} {
		for root := range h.of {
			there, back := []int{0, 0}, []int{0, 0}
			there[h.of[root]], back[1-h.of[root]] = 1, 1
			for _, count := range []int{1, 1 << 17} {
				c := call{kind: kindBcast, alg: algHierarchy, size: 8, count: uint64(count), root: uint32(root)}
				m, b := crossings(c, h)
				require.Equal(t, []int{8 * count * there[0], 8 * count * there[1]}, b, name)
				c.kind, c.op = kindReduce, opSum
				n, b := crossings(c, h)
				require.Equal(t, []int{8 * count * back[0], 8 * count * back[1]}, b, name)
				if count == 1 {
					require.Equal(t, there, m, name)
					require.Equal(t, back, n, name)
				}
			}
		}
		m, _ := crossings(call{kind: kindBarrier, alg: algHierarchy}, h)
		require.Equal(t, []int{1, 1}, m, name)
		c := call{kind: kindAllreduce, alg: algHierarchy, op: opSum, size: 8, count: 1}
		m, b := crossings(c, h)
		require.Equal(t, []int{1, 1}, m, name)
		require.Equal(t, []int{8, 8}, b, name)
		c.count = 1 << 17
		_, b = crossings(c, h)
		require.Equal(t, []int{1 << 20, 1 << 20}, b, name)
	}
	// Blocks go from host to host in one message, and once: those of an Allgather once to each host.
	h := divide([]int{0, 1, 2, 0, 1, 2, 0, 1, 0})
	size := []int{4, 3, 2} // ranks
	all := func(bytes func(from, to int) int) (messages, sum []int) {
		messages, sum = make([]int, 3), make([]int, 3)
		for from := range 3 {
			for to := range 3 {
				if n := bytes(from, to); from != to && n > 0 {
					messages[from]++
					sum[from] += n
				}
			}
		}
		return messages, sum
	}
	const record = recordHead + 8
	for root := range h.of {
		at := h.of[root]
		for k, bytes := range map[kind]func(from, to int) int{
			kindAllgather:      func(from, _ int) int { return 8 * size[from] },
			kindAllgatherv:     func(from, _ int) int { return 8 * size[from] },
			kindAlltoall:       func(from, to int) int { return 8 * size[from] * size[to] },
			kindReduceScatter:  func(_, to int) int { return 8 * size[to] },
			kindReduceScatterv: func(_, to int) int { return 8 * size[to] },
			kindGather: func(from, to int) int {
				if to == at {
					return 8 * size[from]
				}
				return 0
			},
			kindScatter: func(from, to int) int {
				if from == at {
					return 8 * size[to]
				}
				return 0
			},
			kindAlltoallv: func(from, to int) int { return record * size[from] * size[to] },
			kindGatherv: func(from, to int) int {
				if to == at {
					return record * size[from]
				}
				return 0
			},
			kindScatterv: func(from, to int) int {
				if from == at {
					return record * size[to]
				}
				return 0
			},
		} {
			c := call{kind: k, alg: algHierarchy, size: 8, count: 1}
			if k == kindReduceScatter || k == kindReduceScatterv {
				c.op = opSum
			}
			if k.rooted() {
				c.root = uint32(root)
			}
			m, b := crossings(c, h)
			wantMessages, wantBytes := all(bytes)
			require.Equal(t, wantMessages, m, "%v, root %d", k, root)
			require.Equal(t, wantBytes, b, "%v, root %d", k, root)
		}
	}
	_, large := crossings(call{kind: kindAllgather, alg: algHierarchy, size: 8, count: 1 << 10}, h)
	require.Equal(t, []int{4 * 2 << 13, 3 * 2 << 13, 2 * 2 << 13}, large)
	// A scan sends what the ranks of a host have, as if each host were a rank.
	h = divide([]int{0, 0, 0, 1, 1, 2, 2, 2, 3})
	for _, k := range []kind{kindScan, kindExscan} {
		m, b := crossings(call{kind: k, alg: algHierarchy, op: opSum, size: 8, count: 1}, h)
		require.Equal(t, []int{2, 2, 1, 0}, m)
		require.Equal(t, []int{16, 16, 8, 0}, b)
	}
	// Among many hosts, large data leaves none more often than twice.
	h = divide([]int{0, 0, 1, 1, 2, 2, 3, 3, 4, 4})
	_, b := crossings(call{kind: kindBcast, alg: algHierarchy, size: 8, count: 1 << 17}, h)
	require.Equal(t, []int{1 << 20, 1 << 20, 1 << 20, 1 << 20, 0}, b)
	_, b = crossings(call{kind: kindAllreduce, alg: algHierarchy, op: opSum, size: 8, count: 1 << 17}, h)
	for _, n := range b {
		require.LessOrEqual(t, n, 2<<20)
	}
}

// hostJob opens the engines of a job whose ranks count as those of different hosts: host names
// that of a rank.
func hostJob(t testing.TB, n int, host func(rank int) string) []*rma.Engine {
	return jobtest.Open(t, n, "", func(c *rma.Config) {
		c.Settings, c.Bind = map[string]string{"host": host(c.Job.Rank)}, netip.MustParseAddr("127.0.0.1")
	})
}

// In a job on two hosts, operations that are divided among hosts have the right results in any
// order, and a small one sends one message in each direction over the link between the hosts.
func TestHosts(t *testing.T) {
	const p = 6
	es := hostJob(t, p, func(r int) string { return fmt.Sprint("host ", r%2) })
	require.Equal(t, "tcp", es[0].Peer(1).Stats().Link)
	require.Equal(t, "shm", es[0].Peer(2).Stats().Link)
	ts := worlds(t, es)
	ctx := testutil.Context(t, testutil.Limit)
	crossed := func() (n uint64) {
		for r, e := range es {
			for peer := range es {
				if peer%2 != r%2 {
					n += e.Peer(peer).Stats().Sends
				}
			}
		}
		return n
	}
	for _, team := range ts {
		require.NoError(t, team.Force("barrier=hierarchy,bcast=hierarchy,reduce=hierarchy,allreduce=hierarchy"))
	}
	each(t, ts, func(_ int, team *Team) error { return Barrier(ctx, team) })
	for _, x := range []struct {
		what  string
		times uint64
		do    func(ctx context.Context, r int, team *Team) error
	}{
		{"barrier", 2, func(ctx context.Context, _ int, team *Team) error { return Barrier(ctx, team) }},
		{"allreduce", 2, func(ctx context.Context, r int, team *Team) error {
			got := make([]int64, 5)
			if err := Allreduce(ctx, team, input(1, r, 5), got, Sum); err != nil {
				return err
			}
			return equals("allreduce", want(1, 0, p, 5, input, add), got)
		}},
		{"bcast", 1, func(ctx context.Context, r int, team *Team) error {
			got := make([]int64, 7)
			if r == 3 {
				copy(got, input(2, 3, 7))
			}
			if err := Bcast(ctx, team, 3, got); err != nil {
				return err
			}
			return equals("bcast", input(2, 3, 7), got)
		}},
		{"reduce", 1, func(ctx context.Context, r int, team *Team) error {
			got := make([]int64, 9)
			if err := Reduce(ctx, team, 4, input(3, r, 9), got, Sum); err != nil || r != 4 {
				return err
			}
			return equals("reduce", want(3, 0, p, 9, input, add), got)
		}},
	} {
		before := crossed()
		each(t, ts, func(r int, team *Team) error { return x.do(ctx, r, team) })
		require.Equal(t, before+x.times, crossed(), x.what)
	}
	by := map[string]bool{}
	for _, team := range ts {
		require.NoError(t, team.Force(""))
	}
	each(t, ts, func(_ int, team *Team) error { return Allreduce(ctx, team, nil, []int64{1}, Sum) }) // distributes the figures
	for _, team := range ts {
		alg, ps, err := team.Choice("allreduce", 8)
		require.NoError(t, err)
		by[alg] = true
		require.True(t, slices.ContainsFunc(ps, func(p Prediction) bool { return p.Algorithm == "hierarchy" }), "%v", ps)
		require.NoError(t, team.Force("bcast=hierarchy,allreduce=hierarchy,reducescatter=hierarchy,reducescatterv=hierarchy,gather=hierarchy,scatter=hierarchy,allgather=hierarchy,allgatherv=hierarchy,alltoall=hierarchy,gatherv=hierarchy,scatterv=hierarchy,alltoallv=hierarchy"))
	}
	require.Len(t, by, 1, "all choose alike")
	for _, n := range []int{0, 1, 3000, 200_000} {
		each(t, ts, func(r int, team *Team) error {
			got := make([]int64, n)
			if err := Allreduce(ctx, team, input(4, r, n), got, Sum); err != nil {
				return err
			}
			if err := equals("allreduce", want(4, 0, p, n, input, add), got); err != nil {
				return err
			}
			if err := Bcast(ctx, team, n%p, got); err != nil {
				return err
			}
			if err := conform(ctx, team, n%p, min(n, 5000), 6); err != nil {
				return err
			}
			order := make([]affine, n) // the hosts are not adjacent: by another algorithm
			if err := Allreduce(ctx, team, affines(5, r, n), order, FuncInOrder(compose)); err != nil {
				return err
			}
			return equals("in order", want(5, 0, p, n, affines, compose), order)
		})
	}
}
