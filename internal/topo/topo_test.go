package topo

import (
	"fmt"
	"os"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/cpu"
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
	span := func(no, width int) string {
		from := no / width * width
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
	h := Read(d.fs(), cpu.Set{}, cpu.Set{})
	require.Empty(t, h.Assumed)
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
	c, ok := h.Shared(cpu.Of(9))
	require.True(t, ok)
	require.Equal(t, Cache{3, 32 << 20, c.CPUs}, c)
	require.Equal(t, "8-15", c.CPUs.String())
	require.EqualValues(t, 32<<10, h.Level1(cpu.Of(9)))
}

// A bound process reads its own processors first, and those of peers later.
func TestReadOnlyWhatIsWanted(t *testing.T) {
	t.Parallel()
	root := tree{packages: 2, complexes: 2, cores: 4, threads: 2}.fs()
	h := Read(root, cpu.Of(2), cpu.Of(2))
	require.Equal(t, "2-3", h.Known.String(), "and its sibling")
	require.Len(t, h.Caches, 3)
	require.Equal(t, Core, h.Between(cpu.Of(2), cpu.Of(3)))
	require.Equal(t, Unknown, h.Between(cpu.Of(2), cpu.Of(17)))

	more := h.with(root, cpu.Of(17))
	require.Equal(t, Far, more.Between(cpu.Of(2), cpu.Of(17)))
	require.Equal(t, "2-3,16-17", more.Known.String())
	require.Len(t, h.Caches, 3, "the old one stays as it was")
	require.Equal(t, Unknown, h.Between(cpu.Of(2), cpu.Of(17)))

	more = h.with(root, cpu.Of(4, 9))
	require.Equal(t, L3, more.Between(cpu.Of(2), cpu.Of(4)))
	require.Equal(t, Socket, more.Between(cpu.Of(2), cpu.Of(9)))
	require.Len(t, more.Packages, 1)

	root["sys/devices/system/cpu/cpu30/topology/thread_siblings_list"].Data = []byte("?")
	more = h.with(root, cpu.Of(30))
	require.Empty(t, h.Assumed)
	require.Equal(t, []string{`sys/devices/system/cpu/cpu30/topology/thread_siblings_list: malformed list of processors: "?": each of processors 30 counts as a core`}, more.Assumed)
	require.True(t, more.Known.Has(30))
	require.Equal(t, L3, more.with(root, cpu.Of(28)).Between(cpu.Of(30), cpu.Of(28)), "its caches are known")
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
		a, err := cpu.ParseSet(c.a)
		require.NoError(t, err)
		b, err := cpu.ParseSet(c.b)
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
	h := Read(m, cpu.Set{}, cpu.Set{})
	require.Equal(t, L2, h.Between(cpu.Of(0), cpu.Of(1)))
	require.Equal(t, L3, h.Between(cpu.Of(1), cpu.Of(2)))
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
	require.Zero(t, Read(fstest.MapFS{}, cpu.Set{}, cpu.Set{}).Online.Len(), "nothing is known")

	h := Read(fstest.MapFS{cpuDir + "/online": text("0-1")}, cpu.Set{}, cpu.Set{})
	require.Equal(t, Unknown, h.Between(cpu.Of(0), cpu.Of(1)))
	require.Equal(t, Core, h.Between(cpu.Of(0), cpu.Of(0)))
	_, ok := h.Shared(cpu.Of(0))
	require.False(t, ok)
	require.Zero(t, h.Level1(cpu.Of(0)))

	for file, content := range map[string]string{
		"cpu0/cache/index3/shared_cpu_list": "nonsense",
		"cpu0/cache/index3/size":            "big",
		"cpu0/cache/index3/level":           "three",
	} {
		m := tree{1, 1, 2, 1}.fs()
		m[cpuDir+"/cpu1/cache/index3/size"].Data = []byte("0")
		m[cpuDir+"/"+file].Data = []byte(content)
		h = Read(m, cpu.Set{}, cpu.Set{})
		c, ok := h.Shared(cpu.Of(0))
		require.True(t, ok)
		require.Equal(t, 2, c.Level, "a cache that is not described completely is none: %s", file)
	}
}

// One of two threads of a core is offline: the file names processors that are not online.
func TestOfflineProcessorsDoNotCount(t *testing.T) {
	t.Parallel()
	m := tree{1, 1, 2, 2}.fs()
	m["sys/devices/system/cpu/online"].Data = []byte("0,2")
	h := Read(m, cpu.Set{}, cpu.Set{})
	c, ok := h.Shared(cpu.Of(0))
	require.True(t, ok)
	require.Equal(t, "0,2", c.CPUs.String())
	require.Equal(t, Unknown, h.Between(cpu.Of(1), cpu.Of(0)))
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

func TestAssumedCaches(t *testing.T) {
	t.Parallel()
	assumed := func(on cpu.Set, sizes ...int) *Host {
		h := Read(fstest.MapFS{}, on, on)
		h.assumeCaches(sizes...)
		return h
	}
	h := assumed(cpu.Of(8, 9, 10, 11), 32<<10, 1<<20, 16<<20)
	require.Equal(t, L3, h.Between(cpu.Of(8), cpu.Of(11)))
	c, ok := h.Shared(cpu.Of(10))
	require.True(t, ok)
	require.Equal(t, 4, c.CPUs.Len())
	require.EqualValues(t, 16<<20, c.Size)
	h = assumed(cpu.Of(0, 1), -1, -1, -1)
	_, ok = h.Shared(cpu.Of(0))
	require.False(t, ok)
	require.Equal(t, 2, h.Online.Len())
}

func TestLocal(t *testing.T) {
	t.Parallel()
	h := Local()
	require.Same(t, h, Local())
	require.Same(t, h, Local(cpu.Allowed()), "each processor is read once")
	require.Same(t, h, Local(cpu.Of(cpu.MaxCPU-1)), "there is no such one")
	require.True(t, cpu.Allowed().And(h.Online).Within(h.Known))
	require.True(t, h.Online.Within(Local(h.Online).Known))
	require.Positive(t, h.Online.Len())
	require.Positive(t, cpu.Allowed().Len())
}

// The one-time cost of a start, for a host of 256 processors from memory; the kernel's own
// files take about 10 µs each, 20 a core.
func BenchmarkRead(b *testing.B) {
	m := tree{packages: 2, complexes: 8, cores: 8, threads: 2}.fs()
	for b.Loop() {
		Read(m, cpu.Set{}, cpu.Set{})
	}
}

func BenchmarkReadThisHost(b *testing.B) {
	root := os.DirFS("/")
	for b.Loop() {
		Read(root, cpu.Set{}, cpu.Set{})
	}
}
