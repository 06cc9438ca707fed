package topo

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/cpu"
)

// places is the placement of ranks on the usable processors (all if "") of a host: for each
// node its cores, each with the ranks on it and, behind a colon, those whose progress
// threads have it to themselves; "." if there are none.
func places(t *testing.T, root fstest.MapFS, usable string, ranks int, p Policy) string {
	t.Helper()
	h := Read(root, cpu.Set{}, cpu.Set{})
	nodes, _ := ReadNodes(root, h.Online)
	may := h.Online
	if usable != "" {
		var err error
		may, err = cpu.ParseSet(usable)
		require.NoError(t, err)
	}
	bound := h.Place(nodes, may, ranks, p)
	require.Len(t, bound, ranks)
	var out []string
	for _, s := range h.shares(nodes, may) {
		var cores []string
		for _, core := range s.cores {
			var on, progress string
			for r, b := range bound {
				require.True(t, b.CPUs.Within(may))
				same, beside := b.CPUs.Equal(core), b.Progress.Equal(core) && !b.Progress.Equal(b.CPUs)
				require.False(t, (same || beside) && b.Node != s.node)
				if same {
					on += fmt.Sprint(r)
				}
				if beside {
					progress += fmt.Sprint(r)
				}
			}
			require.False(t, on != "" && progress != "", "rank and progress thread on one core")
			switch {
			case progress != "":
				on = ":" + progress
			case on == "":
				on = "."
			}
			cores = append(cores, on)
		}
		out = append(out, strings.Join(cores, " "))
	}
	return strings.Join(out, " | ")
}

// Figures 1b (ranks) and 2b (their progress threads) of the paper: a host of two nodes with
// four cores each.
func TestScatterOnTwoNodesOfFourCores(t *testing.T) {
	t.Parallel()
	root := tree{packages: 2, complexes: 1, cores: 4, threads: 1}.fs()
	for i, want := range []string{
		"0 :0 . . | . . . .",
		"0 :0 . . | 1 :1 . .",
		"0 :0 1 :1 | 2 :2 . .",
		"0 :0 1 :1 | 2 :2 3 :3",
		"0 1 2 :012 | 3 :3 4 :4",
		"0 1 2 :012 | 3 4 5 :345",
		"0 1 2 3 | 4 5 6 :456",
		"0 1 2 3 | 4 5 6 7",
	} {
		require.Equal(t, want, places(t, root, "", i+1, Scatter), "%d ranks", i+1)
	}
}

func TestCompactOnTwoNodesOfFourCores(t *testing.T) {
	t.Parallel()
	root := tree{packages: 2, complexes: 1, cores: 4, threads: 1}.fs()
	for i, want := range []string{
		"0 :0 . . | . . . .",
		"0 1 :0 :1 | . . . .",
		"0 1 2 :012 | . . . .",
		"0 1 2 3 | . . . .",
		"0 1 2 3 | 4 :4 . .",
		"0 1 2 3 | 4 5 :4 :5",
		"0 1 2 3 | 4 5 6 :456",
		"0 1 2 3 | 4 5 6 7",
	} {
		require.Equal(t, want, places(t, root, "", i+1, Compact), "%d ranks", i+1)
	}
}

func TestPlaceOnWhatIsUsable(t *testing.T) {
	t.Parallel()
	two := tree{packages: 2, complexes: 1, cores: 4, threads: 1}.fs()
	smt := tree{packages: 2, complexes: 1, cores: 2, threads: 2}.fs()
	bare := fstest.MapFS{"sys/devices/system/cpu/online": text("0-3")} // neither cores nor nodes
	for _, c := range []struct {
		name   string
		root   fstest.MapFS
		usable string
		ranks  int
		policy Policy
		want   string
	}{
		{"more ranks than cores", two, "", 10, Scatter, "01 2 3 4 | 56 7 8 9"},
		{"more ranks than cores", two, "", 10, Compact, "01 2 3 4 | 56 7 8 9"},
		{"many on one core", two, "5", 3, Scatter, "012"},
		{"a node without usable cores", two, "4-7", 2, Scatter, "0 :0 1 :1"},
		{"a cpuset with holes", two, "1,3,4,7", 2, Scatter, "0 :0 | 1 :1"},
		{"a cpuset with holes", two, "1,3,4,7", 4, Scatter, "0 1 | 2 3"},
		{"unequal nodes", two, "0-3,6", 5, Scatter, "0 1 2 3 | 4"},
		{"unequal nodes, few ranks", two, "0-3,6", 2, Scatter, "0 :0 1 :1 | ."},
		{"unequal nodes", two, "3,4-7", 2, Compact, "0 | 1 :1 . ."},
		{"processors that do not exist", two, "0,900", 1, Scatter, "0"},
		{"both threads of a core", smt, "", 4, Scatter, "0 1 | 2 3"},
		{"both threads of a core", smt, "", 2, Scatter, "0 :0 | 1 :1"},
		{"one thread of some cores", smt, "1-4", 3, Scatter, "0 1 | 2"},
		{"no topology", bare, "", 2, Scatter, "0 :0 1 :1"},
		{"no topology", bare, "1-3", 3, Compact, "0 1 2"},
	} {
		require.Equal(t, c.want, places(t, c.root, c.usable, c.ranks, c.policy), "%s: %d ranks, %v", c.name, c.ranks, c.policy)
	}

	h := host(t, tree{packages: 2, complexes: 1, cores: 2, threads: 2})
	nodes, _ := ReadNodes(smt, h.Online)
	bound := h.Place(nodes, cpu.Of(1, 2, 3, 6), 3, Scatter)
	require.Equal(t, []string{"0 1", "0 2-3", "1 6"}, []string{
		fmt.Sprint(bound[0].Node, " ", bound[0].CPUs), fmt.Sprint(bound[1].Node, " ", bound[1].CPUs), fmt.Sprint(bound[2].Node, " ", bound[2].CPUs)})
	require.Equal(t, 3, h.UsableCores(cpu.Of(1, 2, 3, 6)))
	require.Zero(t, h.UsableCores(cpu.Of(900)))
	require.Nil(t, h.Place(nodes, h.Online, 2, None))
	require.Nil(t, h.Place(nodes, cpu.Of(900), 2, Scatter))
	require.Nil(t, h.Place(nodes, h.Online, 0, Scatter))
	require.Nil(t, h.Place(nil, h.Online, 2, Scatter))
}

// The formulas of the paper, for S nodes of C cores and n ranks, and its claims: ranks are
// alone on their cores while there are enough, and equally many in every node; no rank is
// on the core of a progress thread.
func TestScatterIsThePapersAlgorithm(t *testing.T) {
	t.Parallel()
	for S := 1; S <= 4; S++ {
		for C := 1; C <= 9; C++ {
			h, nodes := &Host{}, []Node(nil)
			for s := range S {
				var cpus cpu.Set
				for c := range C {
					cpus = cpus.Or(cpu.Of(s*C + c))
				}
				h.Online = h.Online.Or(cpus)
				nodes = append(nodes, Node{ID: s, CPUs: cpus})
			}
			for n := 1; n <= 3*S*C; n++ {
				bound := h.Place(nodes, h.Online, n, Scatter)
				require.Len(t, bound, n)
				var taken cpu.Set
				for r, b := range bound {
					numa := r * S / n
					first := (numa*n + S - 1) / S
					inNuma := ((numa+1)*n+S-1)/S - first
					core := (r-first)*C/inNuma + numa*C
					require.Equal(t, Binding{Node: numa, CPUs: cpu.Of(core), Progress: b.Progress}, b, "%d nodes of %d cores, rank %d of %d", S, C, r, n)
					require.True(t, n > S*C || !taken.Has(core))
					taken = taken.Or(cpu.Of(core))
				}
				for r, b := range bound {
					require.Equal(t, b.Node, b.Progress.CPUs()[0]/C, "of the rank's node")
					spare := nodes[b.Node].CPUs.Without(taken).Len() > 0
					require.NotEqual(t, spare, b.Progress.Meets(taken), "%d nodes of %d cores, rank %d of %d", S, C, r, n)
					require.True(t, spare || b.Progress.Equal(b.CPUs))
				}
			}
		}
	}
}

func TestPolicyNames(t *testing.T) {
	t.Parallel()
	for p := None; p <= Compact; p++ {
		got, err := ParsePolicy(p.String())
		require.NoError(t, err)
		require.Equal(t, p, got)
	}
	for _, bad := range []string{"", "Scatter", "spread", "Policy(3)"} {
		_, err := ParsePolicy(bad)
		require.ErrorIs(t, err, ErrPolicy, bad)
	}
	require.Equal(t, "Policy(3)", Policy(3).String())
}
