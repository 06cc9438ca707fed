package topo

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

// tree describes a host for which a sysfs is made: packages of core complexes, each with an
// L3 of its own, cores with an L2 and hardware threads.
type tree struct{ packages, complexes, cores, threads int }

func (t tree) fs() fstest.MapFS {
	m := fstest.MapFS{}
	file := func(name, text string) { m[name] = &fstest.MapFile{Data: []byte(text + "\n")} }
	n := 0
	perCore, perL3 := t.threads, t.cores*t.threads
	perPackage := t.complexes * perL3
	span := func(cpu, width int) string {
		from := cpu / width * width
		if width == 1 {
			return fmt.Sprint(from)
		}
		return fmt.Sprintf("%d-%d", from, from+width-1)
	}
	for p := range t.packages {
		for range perPackage {
			dir := fmt.Sprintf("sys/devices/system/cpu/cpu%d/", n)
			file(dir+"topology/thread_siblings_list", span(n, perCore))
			file(dir+"topology/core_siblings_list", span(n, perPackage))
			for i, c := range []struct {
				level      int
				kind, size string
				width      int
			}{{1, "Data", "32K", perCore}, {1, "Instruction", "64K", perCore}, {2, "Unified", "1024K", perCore}, {3, "Unified", "32M", perL3}} {
				d := fmt.Sprintf("%scache/index%d/", dir, i)
				file(d+"level", fmt.Sprint(c.level))
				file(d+"type", c.kind)
				file(d+"size", c.size)
				file(d+"shared_cpu_list", span(n, c.width))
			}
			n++
		}
		file(fmt.Sprintf("sys/devices/system/node/node%d/cpulist", p), span(n-1, perPackage))
	}
	file("sys/devices/system/cpu/online", span(0, n))
	return m
}

func host(t *testing.T, d tree) *Host {
	h, err := Read(d.fs(), Set{})
	require.NoError(t, err)
	return h
}

func TestRead(t *testing.T) {
	t.Parallel()
	h := host(t, tree{packages: 2, complexes: 2, cores: 4, threads: 2})
	require.Equal(t, "0-31", h.Online.String())
	require.Len(t, h.Cores, 16)
	require.Len(t, h.Packages, 2)
	require.Len(t, h.Caches, 16+16+4, "data caches only, each once")
	for i, c := range h.Caches[1:] {
		require.GreaterOrEqual(t, c.Level, h.Caches[i].Level, "lower levels first")
	}
	c, ok := h.Shared(Of(9))
	require.True(t, ok)
	require.Equal(t, Cache{3, 32 << 20, c.CPUs}, c)
	require.Equal(t, "8-15", c.CPUs.String())
	require.EqualValues(t, 32<<10, h.Level1(Of(9)))
}

// A bound process reads its own processors first, and those of peers later.
func TestReadOnlyWhatIsWanted(t *testing.T) {
	t.Parallel()
	root := tree{packages: 2, complexes: 2, cores: 4, threads: 2}.fs()
	h, err := Read(root, Of(2))
	require.NoError(t, err)
	require.Equal(t, "2-3", h.Known.String(), "and its sibling")
	require.Len(t, h.Caches, 3)
	require.Equal(t, Core, h.Between(Of(2), Of(3)))
	require.Equal(t, Unknown, h.Between(Of(2), Of(17)))

	more, err := h.with(root, Of(17))
	require.NoError(t, err)
	require.Equal(t, Far, more.Between(Of(2), Of(17)))
	require.Equal(t, "2-3,16-17", more.Known.String())
	require.Len(t, h.Caches, 3, "the old one stays as it was")
	require.Equal(t, Unknown, h.Between(Of(2), Of(17)))

	more, err = h.with(root, Of(4, 9))
	require.NoError(t, err)
	require.Equal(t, L3, more.Between(Of(2), Of(4)))
	require.Equal(t, Socket, more.Between(Of(2), Of(9)))
	require.Len(t, more.Packages, 1)

	root["sys/devices/system/cpu/cpu30/topology/thread_siblings_list"].Data = []byte("?")
	_, err = h.with(root, Of(30))
	require.ErrorIs(t, err, ErrList)
}

func TestBetween(t *testing.T) {
	t.Parallel()
	smt := tree{packages: 2, complexes: 2, cores: 4, threads: 2}
	for _, c := range []struct {
		t    tree
		a, b string
		want Near
	}{
		{smt, "0", "0", Core},
		{smt, "0", "1", Core},
		{smt, "0-1", "0-1", Core},
		{smt, "0", "2", L3},
		{smt, "0-3", "2-7", L3},
		{smt, "0-7", "0-7", L3},
		{smt, "0", "8", Socket},
		{smt, "0-7", "8-15", Socket},
		{smt, "0-15", "8-15", Unknown},
		{smt, "0-15", "0-15", Unknown},
		{smt, "0", "16", Far},
		{smt, "0-15", "16-31", Far},
		{smt, "0-16", "17", Unknown},
		{smt, "0-31", "0-31", Unknown},
		{smt, "", "0", Unknown},
		{smt, "0", "900", Unknown},
		{tree{1, 1, 2, 1}, "0-1", "0-1", L3},
		{tree{1, 1, 2, 1}, "0", "1", L3},
		{tree{1, 1, 1, 1}, "0", "0", Core},
		{tree{1, 1, 1, 4}, "0-3", "2", Core},
	} {
		h := host(t, c.t)
		a, err := ParseList(c.a)
		require.NoError(t, err)
		b, err := ParseList(c.b)
		require.NoError(t, err)
		require.Equal(t, c.want, h.Between(a, b), "%+v %q %q", c.t, c.a, c.b)
		require.Equal(t, c.want, h.Between(b, a), "%+v %q %q", c.t, c.b, c.a)
	}
}

func TestBetweenSharedL2(t *testing.T) {
	t.Parallel()
	m := tree{packages: 1, complexes: 1, cores: 4, threads: 1}.fs()
	for c, l := range []string{"0-1", "0-1", "2-3", "2-3"} { // clusters of two cores
		m[fmt.Sprintf("sys/devices/system/cpu/cpu%d/cache/index2/shared_cpu_list", c)].Data = []byte(l)
	}
	h, err := Read(m, Set{})
	require.NoError(t, err)
	require.Equal(t, L2, h.Between(Of(0), Of(1)))
	require.Equal(t, L3, h.Between(Of(1), Of(2)))
}

func TestNearNames(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for n := Unknown; n <= Far; n++ {
		require.False(t, seen[n.String()])
		seen[n.String()] = true
	}
	require.Empty(t, Near(99).String())
}

func TestReadWhatKernelsLeaveOut(t *testing.T) {
	t.Parallel()
	_, err := Read(fstest.MapFS{}, Set{})
	require.ErrorIs(t, err, ErrNoTopology)

	online := func(text string) fstest.MapFS {
		return fstest.MapFS{"sys/devices/system/cpu/online": {Data: []byte(text)}}
	}
	_, err = Read(online(""), Set{})
	require.ErrorIs(t, err, ErrNoTopology)
	_, err = Read(online("0-"), Set{})
	require.ErrorIs(t, err, ErrList)

	h, err := Read(online("0-1"), Set{})
	require.NoError(t, err)
	require.Equal(t, Unknown, h.Between(Of(0), Of(1)), "nothing is known")
	require.Equal(t, Core, h.Between(Of(0), Of(0)))
	_, ok := h.Shared(Of(0))
	require.False(t, ok)
	require.Zero(t, h.Level1(Of(0)))

	m := tree{1, 1, 2, 1}.fs()
	m["sys/devices/system/cpu/cpu0/cache/index3/shared_cpu_list"].Data = []byte("nonsense")
	_, err = Read(m, Set{})
	require.ErrorIs(t, err, ErrList)

	m = tree{1, 1, 2, 1}.fs()
	m["sys/devices/system/cpu/cpu0/cache/index3/size"].Data = []byte("big")
	m["sys/devices/system/cpu/cpu1/cache/index3/size"].Data = []byte("0")
	h, err = Read(m, Set{})
	require.NoError(t, err)
	c, ok := h.Shared(Of(0))
	require.True(t, ok)
	require.Equal(t, 2, c.Level, "a cache without a size is none")
}

// One of two threads of a core is offline: the file names processors that are not online.
func TestOfflineProcessorsDoNotCount(t *testing.T) {
	t.Parallel()
	m := tree{1, 1, 2, 2}.fs()
	m["sys/devices/system/cpu/online"].Data = []byte("0,2")
	h, err := Read(m, Set{})
	require.NoError(t, err)
	c, ok := h.Shared(Of(0))
	require.True(t, ok)
	require.Equal(t, "0,2", c.CPUs.String())
	require.Equal(t, Unknown, h.Between(Of(1), Of(0)))
}

func TestDMAMin(t *testing.T) {
	t.Parallel()
	// The figures of the paper.
	require.EqualValues(t, 1<<20, DMAMin(4<<20, 2))
	require.EqualValues(t, 2<<20, DMAMin(4<<20, 1))
	require.EqualValues(t, 3<<20, DMAMin(6<<20, 1))
	require.EqualValues(t, 2<<20, DMAMin(4<<20, 0))
	require.Zero(t, DMAMin(0, 8))
}

func TestFallback(t *testing.T) {
	t.Parallel()
	h := fallback(4, 32<<10, 1<<20, 16<<20)
	require.Equal(t, L3, h.Between(Of(0), Of(3)))
	c, ok := h.Shared(Of(2))
	require.True(t, ok)
	require.Equal(t, 4, c.CPUs.Len())
	require.EqualValues(t, 16<<20, c.Size)
	h = fallback(2, -1, -1, -1)
	_, ok = h.Shared(Of(0))
	require.False(t, ok)
	require.Equal(t, 2, h.Online.Len())
}

func TestLocal(t *testing.T) {
	t.Parallel()
	h := Local()
	require.Same(t, h, Local())
	require.Same(t, h, Local(Allowed()), "each processor is looked at once")
	require.Same(t, h, Local(Of(MaxCPU-1)), "there is no such one")
	require.True(t, Allowed().And(h.Online).Within(h.Known))
	require.True(t, h.Online.Within(Local(h.Online).Known))
	require.Positive(t, h.Online.Len())
	require.Positive(t, Allowed().Len())
}

func TestSets(t *testing.T) {
	t.Parallel()
	s, err := ParseList(" 0-2,7,64-66,130\n")
	require.NoError(t, err)
	require.Equal(t, "0-2,7,64-66,130", s.String())
	require.Equal(t, 8, s.Len())
	require.True(t, s.Has(65))
	require.False(t, s.Has(3))
	require.False(t, s.Has(-1))
	require.False(t, s.Has(5000))
	require.Equal(t, "1-2,64", s.And(Of(1, 2, 3, 64)).String())
	require.Equal(t, "0-3", Of(0, 1).Or(Of(2, 3)).String())
	require.Equal(t, "0-1,200", Of(200).Or(Of(0, 1)).String())
	require.True(t, Of(1).Within(s))
	require.False(t, Of(1, 3).Within(s))
	require.True(t, Set{}.Within(s))
	require.False(t, Set{}.Meets(s))
	require.Empty(t, Of(-1, MaxCPU).CPUs())
	for _, bad := range []string{"x", "1-", "-1", "3-1", "1,,2", "16384", "0-99999999999", "1--2", strings.Repeat("9", 400)} {
		_, err := ParseList(bad)
		require.ErrorIs(t, err, ErrList, bad)
	}
}

func FuzzParseList(f *testing.F) {
	f.Add("0-3,8")
	f.Add("")
	f.Add("16383")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseList(text)
		if err != nil {
			require.ErrorIs(t, err, ErrList)
			return
		}
		again, err := ParseList(s.String())
		require.NoError(t, err)
		require.Equal(t, s.CPUs(), again.CPUs())
	})
}

// The one-time cost of a start, for a host of 256 processors from memory; the kernel's own
// files take about 10 µs each, 20 a core.
func BenchmarkRead(b *testing.B) {
	m := tree{packages: 2, complexes: 8, cores: 8, threads: 2}.fs()
	for b.Loop() {
		if _, err := Read(m, Set{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkReadThisHost(b *testing.B) {
	root := os.DirFS("/")
	for b.Loop() {
		if _, err := Read(root, Set{}); err != nil {
			b.Skip(err)
		}
	}
}
