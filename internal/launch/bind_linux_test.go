package launch

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/testutil"
	"github.com/seed33544411/rma/internal/topo"
)

// affinity prints the rank and the processors that its process may use.
const affinity = `while read -r name list; do [ "$name" != Cpus_allowed_list: ] || echo "$RMA_RANK on $list"; done </proc/$$/status`

// affinities runs a job of ranks at those places, and returns what they print, by rank.
func affinities(t *testing.T, s Spec) map[int]string {
	t.Helper()
	s.N = len(s.Bind)
	_, out, err := sh(t, s, affinity)
	require.NoError(t, err, out)
	got := map[int]string{}
	for line := range strings.Lines(out) {
		rank, list, ok := strings.Cut(strings.TrimSpace(line), " on ")
		require.True(t, ok, line)
		r, err := strconv.Atoi(rank)
		require.NoError(t, err)
		got[r] = list
	}
	require.Len(t, got, s.N)
	return got
}

// Ranks run where they were placed, from their first instruction on, with fewer and with more
// cores than ranks, and with their standard input through a pipe.
func TestRanksRunWhereTheyArePlaced(t *testing.T) {
	t.Parallel()
	for _, p := range []topo.Policy{topo.Scatter, topo.Compact} {
		for _, n := range []int{1, 2, 2*topo.Local().UsableCores(cpu.Allowed()) + 1} {
			bound, _ := Place(p, n)
			require.Len(t, bound, n)
			want := map[int]string{}
			for r, b := range bound {
				require.True(t, b.CPUs.Within(cpu.Allowed()), "never widened")
				want[r] = b.CPUs.String()
			}
			require.Equal(t, want, affinities(t, Spec{Bind: bound}))
			require.Equal(t, want, affinities(t, Spec{Bind: bound, Stdin: strings.NewReader("input")}))
		}
	}
	bound, assumed := Place(topo.None, 2)
	require.Nil(t, bound)
	require.Empty(t, assumed)
	_, out, err := sh(t, Spec{N: 1}, affinity)
	require.NoError(t, err)
	require.Equal(t, fmt.Sprintf("0 on %v\n", cpu.Allowed()), out)
}

// The launcher's own threads stay where they were: none is left bound.
func TestBindingEndsWithTheJob(t *testing.T) {
	t.Parallel()
	one := cpu.Of(cpu.Allowed().CPUs()[0])
	affinities(t, Spec{Bind: []topo.Binding{{CPUs: one}, {CPUs: one}}})
	require.Eventually(t, func() bool {
		threads, err := filepath.Glob("/proc/self/task/*/status")
		require.NoError(t, err)
		for _, th := range threads {
			text, err := os.ReadFile(th)
			if err == nil && !strings.Contains(string(text), fmt.Sprintf("Cpus_allowed_list:\t%v\n", cpu.Allowed())) {
				return false
			}
		}
		return len(threads) > 0
	}, testutil.Limit, 10*time.Millisecond)
}

func TestPlacesThatCannotBe(t *testing.T) {
	t.Parallel()
	nowhere := topo.Binding{CPUs: cpu.Of(cpu.MaxCPU - 1)}
	here := topo.Binding{CPUs: cpu.Allowed()}
	code, _, err := sh(t, Spec{N: 2, Bind: []topo.Binding{here, nowhere}}, "exec sleep 3600")
	require.Equal(t, ExitNotExec, code)
	var start *StartError
	require.ErrorAs(t, err, &start)
	require.Equal(t, 1, start.Rank)
	require.ErrorIs(t, err, syscall.EINVAL)
	require.ErrorContains(t, err, "bind to processors 16383")

	code, _, err = sh(t, Spec{N: 2, Bind: []topo.Binding{here}}, "exit 0")
	require.Equal(t, ExitUsage, code)
	require.ErrorIs(t, err, ErrSpec)
}

// A bound rank has a P of the Go scheduler for its engine beside the one that computes, and
// gets a free core for it, unless the user has said how many Ps there are.
func TestBoundEnvironment(t *testing.T) {
	core, thread := cpu.Of(0, 4), cpu.Of(2)
	for _, c := range []struct {
		own, progress cpu.Set
		apart         bool
		user          string
		want          []string
	}{
		{thread, cpu.Of(3), false, "", []string{"GOMAXPROCS=2"}},
		{core, cpu.Of(1, 5), false, "", []string{"GOMAXPROCS=2"}},
		{cpu.Of(0, 1, 2, 3), cpu.Of(4), false, "", []string{"GOMAXPROCS=4"}},
		{thread, cpu.Of(3), false, "1", nil},
		{thread, cpu.Of(3), true, "", []string{"RMA_PROGRESS_CPU=3", "GOMAXPROCS=2"}},
		{core, cpu.Of(1, 5), true, "", []string{"RMA_PROGRESS_CPU=1", "GOMAXPROCS=3"}},
		{thread, thread, true, "", []string{"RMA_PROGRESS_CPU=", "GOMAXPROCS=2"}},
		{core, cpu.Of(1, 5), true, "8", []string{"RMA_PROGRESS_CPU=1"}},
	} {
		t.Setenv(envProcs, c.user)
		require.Equal(t, c.want, bindEnviron(&topo.Binding{CPUs: c.own, Progress: c.progress}, c.apart), "%+v", c)
	}
	t.Setenv(envProcs, "")
	cpus := cpu.Allowed().Len()
	var free, crowded []string
	for rank := range cpus {
		free, crowded = append(free, fmt.Sprintf("%d::", rank)), append(crowded, fmt.Sprintf("%d::1", rank))
	}
	crowded = append(crowded, fmt.Sprintf("%d::1", cpus))
	here := cpu.Of(cpu.Allowed().CPUs()[0])
	bound := []topo.Binding{{CPUs: here, Progress: here}, {CPUs: here, Progress: cpu.Of(1000)}}
	const script = `echo "$RMA_RANK:$RMA_PROGRESS_CPU:$GOMAXPROCS"`
	for _, c := range []struct {
		s    Spec
		want []string
	}{
		{Spec{N: cpus}, free},
		{Spec{N: cpus + 1}, crowded},
		{Spec{N: cpus + 1, Env: []string{"GOMAXPROCS="}}, append(slices.Clone(free), fmt.Sprintf("%d::", cpus))},
		{Spec{N: 2, Bind: bound}, []string{"0::2", "1::2"}},
		{Spec{N: 2, Bind: bound, BindProgress: true}, []string{"0::2", "1:1000:2"}},
		{Spec{N: 2, Bind: bound, Env: []string{"GOMAXPROCS=5"}}, []string{"0::5", "1::5"}},
	} {
		_, out, err := sh(t, c.s, script)
		require.NoError(t, err)
		require.ElementsMatch(t, c.want, strings.Fields(out))
	}
}

func TestWriteBindings(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	require.NoError(t, WriteBindings(&b, []topo.Binding{
		{Node: 0, CPUs: cpu.Of(0, 8), Progress: cpu.Of(1, 9)},
		{Node: topo.NoNode, CPUs: cpu.Of(10), Progress: cpu.Of(10)},
	}, []string{"this", "and that"}))
	require.Equal(t, "rank  node  processors  progress\n0     0     0,8         1,9\n1     -     10          10\nassumed: this\nassumed: and that\n", b.String())
	b.Reset()
	require.NoError(t, WriteBindings(&b, nil, nil))
	require.Equal(t, fmt.Sprintf("ranks are not bound: each may run on processors %v\n", cpu.Allowed()), b.String())
}
