package topo

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// ErrNoTopology says that the host does not tell how it is built.
var ErrNoTopology = errors.New("topo: no topology in sysfs")

// Cache is one cache that holds data.
type Cache struct {
	Level int
	Size  uint64 // bytes
	CPUs  Set    // the processors that share it
}

// Host is the arrangement of a host's processors. Not changed after Read.
type Host struct {
	Online   Set
	Caches   []Cache // those of the lower levels first
	Cores    []Set   // the processors (hardware threads) of each core
	Packages []Set   // of each socket
	Nodes    []Set   // of each memory node with processors
}

const cpuDir = "sys/devices/system/cpu"

// Read takes the arrangement from the file tree of a host (os.DirFS("/")). What a
// kernel leaves out is empty in the result; a tree without processors gives
// ErrNoTopology, a malformed list an error that wraps ErrList.
func Read(root fs.FS) (*Host, error) {
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
	for _, cpu := range h.Online.CPUs() {
		dir := path.Join(cpuDir, "cpu"+strconv.Itoa(cpu))
		if err := h.readCaches(root, dir); err != nil {
			return nil, err
		}
		for _, g := range []struct {
			to   *[]Set
			file string
		}{
			{&h.Cores, "thread_siblings_list"},
			{&h.Packages, "core_siblings_list"}, // all processors of the package, whatever its name
		} {
			set, err := readList(root, path.Join(dir, "topology", g.file))
			if err != nil {
				return nil, err
			}
			addSet(g.to, set.And(h.Online))
		}
	}
	nodes, _ := fs.Glob(root, "sys/devices/system/node/node[0-9]*/cpulist") // the pattern is well-formed
	for _, f := range nodes {
		set, err := readList(root, f)
		if err != nil {
			return nil, err
		}
		addSet(&h.Nodes, set.And(h.Online))
	}
	return h, nil
}

// readList reads a file with a list; one that is not there is the empty set.
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

// addSet adds a set that is neither empty nor there already.
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

func (h *Host) readCaches(root fs.FS, dir string) error {
	dirs, _ := fs.Glob(root, dir+"/cache/index[0-9]*") // the pattern is well-formed
	for _, d := range dirs {
		word := func(name string) string {
			b, _ := fs.ReadFile(root, path.Join(d, name)) // "" if it is not told
			return strings.TrimSpace(string(b))
		}
		level, err := strconv.Atoi(word("level"))
		size, ok := parseSize(word("size"))
		if kind := word("type"); err != nil || !ok || level < 1 || kind != "Data" && kind != "Unified" {
			continue
		}
		set, err := readList(root, path.Join(d, "shared_cpu_list"))
		if err != nil {
			return err
		}
		if set = set.And(h.Online); set.Len() == 0 {
			continue
		}
		h.addCache(Cache{Level: level, Size: size, CPUs: set})
	}
	return nil
}

func (h *Host) addCache(c Cache) {
	at := len(h.Caches)
	for i, have := range h.Caches {
		if have.Level == c.Level && have.CPUs.Within(c.CPUs) && c.CPUs.Within(have.CPUs) {
			return
		}
		if have.Level > c.Level && at == len(h.Caches) {
			at = i
		}
	}
	h.Caches = append(h.Caches, Cache{})
	copy(h.Caches[at+1:], h.Caches[at:])
	h.Caches[at] = c
}

// parseSize reads a size as sysfs has it: "48K", "32M", bytes without a letter.
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
