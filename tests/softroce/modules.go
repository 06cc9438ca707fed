//go:build linux

package main

import (
	"bufio"
	"bytes"
	"debug/elf"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// guestModules are loaded in a qemu guest, with their dependencies. The crypto layer would
// request crc32 through modprobe, so it is listed; the generic one, because carry-less
// multiplication is slow in emulation.
var guestModules = []string{
	"virtio_pci", "9p", "9pnet_virtio", "overlay",
	"crc32_generic", "veth", "dummy", "virtio_net", "sch_netem", "sch_tbf",
	"rdma_rxe", "ib_uverbs", "rdma_ucm", "ib_umad",
}

// moduleTree holds the modules of one kernel by name, '-' written '_'.
type moduleTree struct {
	files   map[string]string // name → path
	builtin map[string]bool
	read    func(path string) ([]byte, error)
}

func moduleName(file string) (name string, ok bool) {
	b := filepath.Base(file)
	i := strings.Index(b, ".ko")
	if i <= 0 {
		return "", false
	}
	return strings.ReplaceAll(b[:i], "-", "_"), true
}

// openModules walks lib/modules/VERSION of an unpacked kernel package.
func openModules(dir string, read func(string) ([]byte, error)) (*moduleTree, error) {
	t := &moduleTree{files: map[string]string{}, builtin: map[string]bool{}, read: read}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if n, ok := moduleName(p); ok {
			t.files[n] = p
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	b, err := os.ReadFile(filepath.Join(dir, "modules.builtin"))
	if err != nil {
		return nil, err
	}
	for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
		if n, ok := moduleName(s.Text()); ok {
			t.builtin[n] = true
		}
	}
	return t, nil
}

// module is one file to load.
type module struct {
	name string
	data []byte
}

// resolve lists the wanted modules and their dependencies in load order. It omits built-in
// ones; a module that does not exist is an error.
func (t *moduleTree) resolve(want []string) ([]module, error) {
	var out []module
	state := map[string]int{} // 1 in progress, 2 done
	var visit func(name, by string) error
	visit = func(name, by string) error {
		name = strings.ReplaceAll(name, "-", "_")
		switch state[name] {
		case 1:
			return fmt.Errorf("modules: %s and %s depend on each other", name, by)
		case 2:
			return nil
		}
		path, ok := t.files[name]
		if !ok {
			if t.builtin[name] {
				state[name] = 2
				return nil
			}
			return fmt.Errorf("modules: this kernel has no %s (wanted by %s): take a full kernel image, not a cloud one", name, by)
		}
		state[name] = 1
		data, err := t.read(path)
		if err != nil {
			return fmt.Errorf("modules: read %s: %w", name, err)
		}
		info, err := modinfo(data)
		if err != nil {
			return fmt.Errorf("modules: %s: %w", name, err)
		}
		for _, d := range strings.Split(info["depends"], ",") {
			if d != "" {
				if err := visit(d, name); err != nil {
					return err
				}
			}
		}
		state[name] = 2
		out = append(out, module{name, data})
		return nil
	}
	for _, w := range want {
		if err := visit(w, "the guest"); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// modinfo reads the key=value section of a kernel module; of several values of a key it
// returns the first.
func modinfo(ko []byte) (map[string]string, error) {
	f, err := elf.NewFile(bytes.NewReader(ko))
	if err != nil {
		return nil, err
	}
	s := f.Section(".modinfo")
	if s == nil {
		return nil, fmt.Errorf("no .modinfo section")
	}
	b, err := s.Data()
	if err != nil {
		return nil, err
	}
	info := map[string]string{}
	for _, kv := range strings.Split(string(b), "\x00") {
		if k, v, ok := strings.Cut(kv, "="); ok {
			if _, dup := info[k]; !dup {
				info[k] = v
			}
		}
	}
	return info, nil
}
