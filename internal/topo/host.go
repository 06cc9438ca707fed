package topo

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// ErrNoTopology says that the host does not report its topology.
var ErrNoTopology = errors.New("topo: no topology in sysfs")

// Cache is one cache that holds data.
type Cache struct {
	Level int
	Size  uint64 // bytes
	CPUs  Set    // the processors that share it
}

// Host is the arrangement of a host's processors. Immutable after Read.
type Host struct {
	Online   Set
	Known    Set     // the processors read; the fields below are complete for them
	Caches   []Cache // those of the lower levels first
	Cores    []Set   // the processors (hardware threads) of each core
	Packages []Set   // of each socket
}

const cpuDir = "sys/devices/system/cpu"

// Read reads the arrangement from the file tree of a host (os.DirFS("/")), as far as it
// concerns the processors of want; the empty set means all that are online. Data that a
// kernel omits is empty in the result; a tree without processors gives ErrNoTopology, a
// malformed list an error that wraps ErrList.
func Read(root fs.FS, want Set) (*Host, error) {
	text, err := fs.ReadFile(root, cpuDir+"/online")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoTopology, err)
	}
	h := &Host{}
	if h.Online, err = ParseList(string(text)); err != nil {
		return nil, err
	}
	if h.Online.Len() == 0 {
		return nil, fmt.Errorf("%w: no processor is online", ErrNoTopology)
	}
	if want.Len() == 0 {
		want = h.Online
	}
	return h.with(root, want)
}

// with returns h extended by the processors of want; h is not modified.
func (h *Host) with(root fs.FS, want Set) (*Host, error) {
	n := &Host{
		Online: h.Online, Known: h.Known,
		Caches: slices.Clone(h.Caches), Cores: slices.Clone(h.Cores), Packages: slices.Clone(h.Packages),
	}
	for _, cpu := range want.And(h.Online).CPUs() {
		if n.Known.Has(cpu) {
			continue
		}
		dir := path.Join(cpuDir, "cpu"+strconv.Itoa(cpu))
		core, err := readList(root, dir+"/topology/thread_siblings_list")
		if err != nil {
			return nil, err
		}
		if !inOne(n.Packages, Of(cpu)) {
			all, err := readList(root, dir+"/topology/core_siblings_list") // of the package, despite its name
			if err != nil {
				return nil, err
			}
			addSet(&n.Packages, all.And(h.Online))
		}
		if err := n.readCaches(root, dir, cpu); err != nil {
			return nil, err
		}
		addSet(&n.Cores, core.And(h.Online))
		// Threads of a core share everything that is read.
		n.Known = n.Known.Or(Of(cpu)).Or(core.And(h.Online))
	}
	return n, nil
}

// readList reads a file with a list; a missing file is the empty set.
func readList(root fs.FS, name string) (Set, error) {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return Set{}, nil //nolint:nilerr // older kernels and other architectures have fewer files
	}
	set, err := ParseList(string(text))
	if err != nil {
		return Set{}, fmt.Errorf("%s: %w", name, err)
	}
	return set, nil
}

// addSet adds a set that is neither empty nor already present.
func addSet(to *[]Set, s Set) {
	if s.Len() == 0 {
		return
	}
	for _, have := range *to {
		if have.Within(s) && s.Within(have) {
			return
		}
	}
	*to = append(*to, s)
}

func (h *Host) readCaches(root fs.FS, dir string, cpu int) error {
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
		if err != nil || level < 1 || h.hasCache(level, cpu) {
			continue
		}
		size, ok := parseSize(word("size"))
		if !ok {
			continue
		}
		set, err := readList(root, path.Join(d, "shared_cpu_list"))
		if err != nil {
			return err
		}
		if set = set.And(h.Online); set.Len() > 0 {
			h.addCache(Cache{Level: level, Size: size, CPUs: set})
		}
	}
	return nil
}

func (h *Host) hasCache(level, cpu int) bool {
	for i := range h.Caches {
		if c := &h.Caches[i]; c.Level == level && c.CPUs.Has(cpu) {
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
	shift := 0
	if n := len(text); n > 0 {
		switch text[n-1] {
		case 'K':
			shift = 10
		case 'M':
			shift = 20
		case 'G':
			shift = 30
		}
		if shift != 0 {
			text = text[:n-1]
		}
	}
	n, err := strconv.ParseUint(text, 10, 32)
	return n << shift, err == nil && n > 0
}
