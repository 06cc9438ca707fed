//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// cgroup is a control group that exists for a round.
type cgroup struct {
	dir string
	v2  bool
}

var cgroups atomic.Int64

// newCgroup makes a group below the root of the controller's hierarchy of version 1, or of
// the one hierarchy of version 2. It fails if the system has none, or does not permit this
// user to make one.
func newCgroup(controller string, v2 bool) (*cgroup, error) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(mounts)) {
		w := strings.Fields(line) // device, directory, type, options
		if len(w) < 4 || v2 && w[2] != "cgroup2" || !v2 && (w[2] != "cgroup" || !strings.Contains(","+w[3]+",", ","+controller+",")) {
			continue
		}
		c := &cgroup{dir: filepath.Join(w[1], fmt.Sprintf("rma-chaos-%d-%d", os.Getpid(), cgroups.Add(1))), v2: v2}
		if err := os.Mkdir(c.dir, 0o755); err != nil {
			return nil, fmt.Errorf("no control group: %w", errors.Unwrap(err))
		}
		return c, nil
	}
	return nil, fmt.Errorf("this system has no control groups with %s (version 2: %v)", controller, v2)
}

func (c *cgroup) set(file, value string) error {
	if err := os.WriteFile(filepath.Join(c.dir, file), []byte(value), 0o644); err != nil {
		return fmt.Errorf("control group: %s: %w", file, errors.Unwrap(err))
	}
	return nil
}

func (c *cgroup) get(file string) string {
	b, _ := os.ReadFile(filepath.Join(c.dir, file))
	return strings.TrimSpace(string(b))
}

func (c *cgroup) add(pid int) error { return c.set("cgroup.procs", strconv.Itoa(pid)) }

// limitMemory bounds the memory of the group's processes.
func (c *cgroup) limitMemory(bytes int) error {
	if c.v2 {
		return c.set("memory.max", strconv.Itoa(bytes))
	}
	_ = c.set("memory.swappiness", "0") // if the system swaps
	return c.set("memory.limit_in_bytes", strconv.Itoa(bytes))
}

// freeze returns when all processes of the group are frozen.
func (c *cgroup) freeze() error {
	file, value := "freezer.state", "FROZEN"
	frozen := func() bool { return c.get(file) == value }
	if c.v2 {
		file, value = "cgroup.freeze", "1"
		frozen = func() bool { return strings.Contains(c.get("cgroup.events"), "frozen 1") }
	}
	if err := c.set(file, value); err != nil {
		return err
	}
	for end := now() + tellLimit; !frozen(); time.Sleep(time.Millisecond) {
		if now() > end {
			return errors.New("control group: the freezer does not freeze")
		}
	}
	return nil
}

func (c *cgroup) thaw() {
	if c.v2 {
		_ = c.set("cgroup.freeze", "0")
		return
	}
	_ = c.set("freezer.state", "THAWED")
}

// close removes the group, whose processes have ended or are ending.
func (c *cgroup) close() {
	for end := now() + tellLimit; now() < end; time.Sleep(10 * time.Millisecond) {
		if err := os.Remove(c.dir); err == nil || os.IsNotExist(err) {
			return
		}
	}
}
