package topo

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/seed33544411/rma/internal/bytesize"
	"github.com/seed33544411/rma/internal/cpu"
)

// Cache is one cache that holds data.
type Cache struct {
	Level int
	Size  uint64  // bytes
	CPUs  cpu.Set // the processors that share it
}

// Host is the arrangement of a host's processors. Immutable after Read.
type Host struct {
	// Assumed says what the host does not report, or not correctly, and what is assumed
	// instead, in words for users. Empty on most hosts.
	Assumed []string

	Online   cpu.Set
	Known    cpu.Set   // the processors read; the fields below are complete for them
	Caches   []Cache   // those of the lower levels first
	Cores    []cpu.Set // the processors (hardware threads) of each core
	Packages []cpu.Set // of each socket
}

const cpuDir = "sys/devices/system/cpu"

// Read reads the arrangement from the file tree of a host (os.DirFS("/")), as far as it
// concerns the processors of want; the empty set means all that are online. The processors
// allowed to this process are online whatever the files say: containers hide the files or
// number the processors in their own way. Caches that the host does not report are missing
// in the result.
func Read(root fs.FS, allowed, want cpu.Set) *Host {
	h := &Host{Online: allowed}
	online, err := readList(root, cpuDir+"/online")
	switch {
	case err != nil:
		h.assume("%v: processors %v, which this process may use, count as all", err, allowed)
	default:
		h.Online = online.Or(allowed)
		if more := allowed.Without(online); more.Len() > 0 {
			h.assume("processors %v count as online, because this process may use them; %s has only %v", more, cpuDir+"/online", online)
		}
	}
	if want.Len() == 0 {
		want = h.Online
	}
	return h.with(root, want)
}

func (h *Host) assume(format string, args ...any) {
	h.Assumed = append(h.Assumed, fmt.Sprintf(format, args...))
}

// with returns h extended by the processors of want; h is not modified.
func (h *Host) with(root fs.FS, want cpu.Set) *Host {
	n := &Host{
		Assumed: slices.Clone(h.Assumed), Online: h.Online, Known: h.Known,
		Caches: slices.Clone(h.Caches), Cores: slices.Clone(h.Cores), Packages: slices.Clone(h.Packages),
	}
	var alone cpu.Set // whose cores are not reported
	var why error
	for _, no := range want.And(h.Online).CPUs() {
		if n.Known.Has(no) {
			continue
		}
		self, dir := cpu.Of(no), path.Join(cpuDir, "cpu"+strconv.Itoa(no))
		core, err := readList(root, dir+"/topology/thread_siblings_list")
		if err == nil && !core.Has(no) {
			err = fmt.Errorf("%s/topology/thread_siblings_list is %q, without processor %d", dir, core, no)
		}
		if err != nil {
			if alone.Len() == 0 {
				why = err
			}
			alone, core = alone.Or(self), self
		} else {
			addSet(&n.Cores, core.And(h.Online))
		}
		if !inOne(n.Packages, self) {
			all, _ := readList(root, dir+"/topology/core_siblings_list") // of the package, despite its name
			if all.Has(no) {
				addSet(&n.Packages, all.And(h.Online))
			}
		}
		n.readCaches(root, dir, no)
		// Threads of a core share everything that is read.
		n.Known = n.Known.Or(self).Or(core.And(h.Online))
	}
	if alone.Len() > 0 {
		n.assume("%v: each of processors %v counts as a core", why, alone)
	}
	return n
}

// readList reads a file with a list. Errors name the file.
func readList(root fs.FS, name string) (cpu.Set, error) {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return cpu.Set{}, err
	}
	set, err := cpu.ParseSet(string(text))
	if err != nil {
		return cpu.Set{}, fmt.Errorf("%s: %w", name, err)
	}
	return set, nil
}

// addSet adds a set that is neither empty nor already present.
func addSet(to *[]cpu.Set, s cpu.Set) {
	if s.Len() > 0 && !slices.ContainsFunc(*to, s.Equal) {
		*to = append(*to, s)
	}
}

// readCaches adds the data caches of a processor. One that is not described completely
// counts as missing.
func (h *Host) readCaches(root fs.FS, dir string, no int) {
	dirs, _ := fs.Glob(root, dir+"/cache/index[0-9]*") // the pattern is well-formed
	for _, d := range dirs {
		word := func(name string) string {
			b, _ := fs.ReadFile(root, path.Join(d, name)) // "" if the file is missing
			return strings.TrimSpace(string(b))
		}
		if kind := word("type"); kind != "Data" && kind != "Unified" {
			continue
		}
		level, err := strconv.Atoi(word("level"))
		if err != nil || level < 1 || h.hasCache(level, no) {
			continue
		}
		size, ok := parseSize(word("size"))
		if !ok {
			continue
		}
		if set, err := readList(root, path.Join(d, "shared_cpu_list")); err == nil && set.Has(no) {
			h.addCache(Cache{Level: level, Size: size, CPUs: set.And(h.Online)})
		}
	}
}

func (h *Host) hasCache(level, no int) bool {
	for i := range h.Caches {
		if c := &h.Caches[i]; c.Level == level && c.CPUs.Has(no) {
			return true
		}
	}
	return false
}

// addCache adds c, which is not present yet, behind those of its level.
func (h *Host) addCache(c Cache) {
	at := len(h.Caches)
	for at > 0 && h.Caches[at-1].Level > c.Level {
		at--
	}
	h.Caches = slices.Insert(h.Caches, at, c)
}

// parseSize parses a size in the format of sysfs: "48K", "32M", bytes without a letter.
func parseSize(text string) (uint64, bool) {
	n, err := bytesize.Parse(text)
	return uint64(n), err == nil && n > 0
}
