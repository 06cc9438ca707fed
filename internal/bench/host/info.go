package host

import (
	"cmp"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/klauspost/cpuid/v2"

	"github.com/seed33544411/rma/internal/bench"
	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/topo"
)

// Info is the content of `rmabench info`.
type Info struct {
	Machine  bench.Machine `json:"machine"`
	Cores    int           `json:"cores"` // of the usable processors, 0 if unknown
	Threads  int           `json:"threads"`
	Features []string      `json:"features"` // those relevant to copies and polling
	Caches   []Cache       `json:"caches"`
	MemTotal uint64        `json:"mem_total"` // bytes
	MemAvail uint64        `json:"mem_available"`
	Nodes    int           `json:"numa_nodes"`
	Copies   Copies        `json:"copies"`
	Links    []Link        `json:"links"`
	Verbs    Verbs         `json:"verbs"`
}

// Cache is one cache level of the first processor.
type Cache struct {
	Level  int    `json:"level"`
	Type   string `json:"type"`
	Size   uint64 `json:"size"` // bytes
	Line   int    `json:"line"`
	Shared string `json:"shared_by"` // list of processors
}

// Collect gathers the machine's facts. Facts that cannot be read are left empty.
func Collect(s System) Info {
	in := Info{
		Machine: bench.ThisMachine(), Cores: cores(s), Threads: s.CPUs,
		Caches: caches(s.Root), Nodes: numaNodes(s.Root), Links: s.Links(), Verbs: s.Verbs(),
	}
	for _, f := range []cpuid.FeatureID{cpuid.AVX2, cpuid.AVX512F, cpuid.ERMS, cpuid.FSRM, cpuid.MOVDIRI,
		cpuid.WAITPKG, cpuid.RDTSCP, cpuid.HYPERVISOR, cpuid.ASIMD, cpuid.ATOMICS} {
		if cpuid.CPU.Supports(f) {
			in.Features = append(in.Features, strings.ToLower(f.String()))
		}
	}
	in.Copies = copies(s.Root)
	mem := meminfo(s.Root)
	in.MemTotal, in.MemAvail = mem["MemTotal"], mem["MemAvailable"]
	if len(in.Caches) == 0 { // no sysfs entry (some virtual machines): use CPUID
		c := cpuid.CPU
		for i, size := range []int{c.Cache.L1D, c.Cache.L2, c.Cache.L3} {
			if size > 0 {
				in.Caches = append(in.Caches, Cache{Level: i + 1, Type: "Data", Size: uint64(size), Line: c.CacheLine})
			}
		}
	}
	return in
}

// cores returns the number of cores of the processors that this process may use, as doctor counts
// them. Processors themselves report those of a package, and in virtual machines often wrong ones.
func cores(s System) int {
	h := topo.Read(s.Root, s.Allowed, cpu.Set{})
	if s.Allowed.Len() == 0 {
		return h.UsableCores(h.Online)
	}
	return h.UsableCores(s.Allowed)
}

const cacheDir = "sys/devices/system/cpu/cpu0/cache"

func caches(root fs.FS) []Cache {
	dirs, _ := fs.Glob(root, cacheDir+"/index*")
	slices.Sort(dirs)
	var out []Cache
	for _, d := range dirs {
		c := Cache{Type: read(root, d+"/type"), Shared: read(root, d+"/shared_cpu_list")}
		if c.Type == "Instruction" {
			continue
		}
		c.Level, _ = strconv.Atoi(read(root, d+"/level"))
		c.Line, _ = strconv.Atoi(read(root, d+"/coherency_line_size"))
		if n, err := bench.ParseSizes(read(root, d+"/size")); err == nil {
			c.Size = uint64(n[0])
		}
		out = append(out, c)
	}
	return out
}

func numaNodes(root fs.FS) int {
	dirs, _ := fs.Glob(root, "sys/devices/system/node/node[0-9]*")
	return len(dirs)
}

// meminfo reads /proc/meminfo and converts kB to bytes.
func meminfo(root fs.FS) map[string]uint64 {
	out := map[string]uint64{}
	for l := range strings.Lines(read(root, "proc/meminfo")) {
		name, rest, ok := strings.Cut(l, ":")
		f := strings.Fields(rest)
		if !ok || len(f) == 0 {
			continue
		}
		n, err := strconv.ParseUint(f[0], 10, 50)
		if err != nil {
			continue
		}
		if len(f) > 1 && f[1] == "kB" {
			n <<= 10
		}
		out[name] = n
	}
	return out
}

// read returns the content of a small file without surrounding space, "" if there is none.
func read(root fs.FS, name string) string {
	b, err := fs.ReadFile(root, path.Clean(name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// WriteText writes the facts for people.
func (in Info) WriteText(w io.Writer) error {
	p := &printer{w: w}
	m := in.Machine
	p.f("machine\n")
	p.row("cpu", "%s, %d usable processors%s", cmp.Or(m.CPU, m.Arch), in.Threads, coresText(in.Cores))
	p.row("features", "%s", cmp.Or(strings.Join(in.Features, " "), "none known"))
	for _, c := range in.Caches {
		p.row(fmt.Sprintf("L%d %s", c.Level, strings.ToLower(c.Type)), "%s, line %d%s", bytesText(c.Size), c.Line, prefixed(", processors ", c.Shared))
	}
	p.row("copies", "%s", in.Copies.text())
	p.row("memory", "%s, %s available, %d NUMA node(s)", bytesText(in.MemTotal), bytesText(in.MemAvail), max(in.Nodes, 1))
	p.row("kernel", "%s %s%s", m.OS, m.Kernel, prefixed(", virtual: ", m.Virtual))
	p.row("waits", "up to %d ranks: %v; more: %v", in.Threads, cpu.For(1, in.Threads), cpu.For(2, in.Threads))
	p.row("go", "%s %s/%s; reading the cycle counter takes %.1f ns", m.Go, m.OS, m.Arch, m.TimerNS)
	p.f("\nlinks\n")
	for _, l := range in.Links {
		state := "usable"
		if !l.Usable {
			state = "not usable: " + l.Why
		}
		p.row(l.Name, "%s%s", state, prefixed("; ", l.Detail))
	}
	p.f("\nverbs\n")
	p.row("support", "%s", in.Verbs.Reason)
	if len(in.Verbs.Devices) == 0 {
		p.row("devices", "none")
	}
	for _, d := range in.Verbs.Devices {
		p.device(d)
	}
	return p.err
}

type printer struct {
	w   io.Writer
	err error
}

func (p *printer) f(format string, a ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format, a...)
	}
}

func (p *printer) row(name, format string, a ...any) {
	p.f("  %-12s "+format+"\n", append([]any{name}, a...)...)
}

func (p *printer) device(d Device) {
	p.row("device", "%s%s", d.Name, prefixed(" on ", strings.Join(d.NetDev, ", ")))
	if d.Err != "" {
		p.row("", "%s", d.Err)
	}
	if d.Limits != "" {
		p.row("", "%s", d.Limits)
	}
	for _, port := range d.Ports {
		p.row("", "port %d: %s, %s, MTU %s", port.Number, port.State, port.LinkLayer, port.MTU)
		for _, g := range port.GIDs {
			mark := " "
			if g.Chosen {
				mark = "*"
			}
			p.row("", "  %s gid %2d  %-26s %-10s %-8s %s", mark, g.Index, g.GID, g.Type, g.NetDev, g.Why)
		}
		if port.Choice != "" {
			p.row("", "  choice: %s", port.Choice)
		}
	}
}

func coresText(n int) string {
	if n <= 0 {
		return ""
	}
	return fmt.Sprintf(" on %d core(s)", n)
}

func prefixed(prefix, s string) string {
	if s == "" {
		return ""
	}
	return prefix + s
}

// bytesText formats a number of bytes with a binary unit.
func bytesText(n uint64) string {
	for i, unit := range []string{"GiB", "MiB", "KiB"} {
		if f := float64(n) / float64(uint64(1)<<(30-10*i)); f >= 1 {
			return strconv.FormatFloat(f, 'g', 4, 64) + " " + unit
		}
	}
	return strconv.FormatUint(n, 10) + " B"
}
