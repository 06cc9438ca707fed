//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// uml starts a User-Mode Linux kernel: a process of the host whose programs run at native
// speed, on one CPU.
type uml struct {
	linux string
	opt   Options
	self  string
	cpus  []int // host CPU for each node
}

// cpu pins a kernel and its user processes to one CPU: a system call then takes 7 µs, and
// ten times that if they are on different ones.
func (u *uml) cpu(node int) int {
	if len(u.cpus) == 0 {
		return -1
	}
	return u.cpus[node%len(u.cpus)]
}

func (u *uml) command(ctx context.Context, g guestSpec) (*exec.Cmd, error) {
	mem := u.opt.Mem
	if mem == "" {
		mem = "2G"
	}
	args := []string{
		"mem=" + mem, "root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro",
		"init=" + u.self, "con=null", "con0=null,fd:1", "ssl=null", "quiet", "panic=-1",
		"umid=guest", "uml_dir=" + g.ctl,
		"SOFTROCE_GUEST=uml", "SOFTROCE_CTL=" + g.ctl,
	}
	if g.wire != nil {
		// with idle ticks off, a kernel that waits for its peer's packets oversleeps them
		args = append(args, "nohz=off",
			fmt.Sprintf("vec0:transport=fd,fd=3,mac=52:54:00:00:00:%02x,mtu=%d", g.plan.Node+1, wireMTU))
	}
	cmd := exec.CommandContext(ctx, u.linux, args...)
	console, err := os.Create(filepath.Join(g.ctl, "console"))
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = console, console
	cmd.Env = append(os.Environ(), "TMPDIR="+memDir(g.ctl))
	if g.wire != nil {
		cmd.ExtraFiles = []*os.File{g.wire}
	}
	return cmd, nil
}

// memDir is the directory of guest memory, an unlinked file: in RAM if there is room and
// execution is permitted there.
func memDir(fallback string) string {
	var st unix.Statfs_t
	if err := unix.Statfs("/dev/shm", &st); err != nil || st.Flags&unix.ST_NOEXEC != 0 ||
		st.Bavail*uint64(st.Bsize) < 3<<30 || unix.Access("/dev/shm", unix.W_OK) != nil {
		return fallback
	}
	return "/dev/shm"
}

// pickCPUs selects n CPUs that this process may run on, preferably ones not held by another
// guest of this cache, the highest first. release frees them.
func pickCPUs(c *cache, n int) (cpus []int, release func()) {
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) != nil {
		return nil, func() {}
	}
	var all []int
	for i := len(set)*64 - 1; i >= 0; i-- {
		if set.IsSet(i) {
			all = append(all, i)
		}
	}
	var unlocks []func()
	taken := map[int]bool{}
	for _, i := range all {
		if len(cpus) == n {
			break
		}
		unlock, err := lockFile(filepath.Join(c.runs(), fmt.Sprintf("cpu%d.lock", i)), false, nil)
		if err == nil {
			unlocks = append(unlocks, unlock)
			cpus, taken[i] = append(cpus, i), true
		}
	}
	for _, i := range all { // all held: share rather than wait
		if len(cpus) < n && !taken[i] {
			cpus = append(cpus, i)
		}
	}
	return cpus, func() {
		for _, u := range unlocks {
			u()
		}
	}
}
