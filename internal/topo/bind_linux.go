package topo

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/internal/cpu"
)

// BindThread binds the calling thread, which the caller has locked, and the processes and
// threads that it creates from now on, to the processors s. The error wraps the system's and
// gives the reason for it, as far as the system shows it.
func BindThread(s cpu.Set) error {
	u := unix.NewCPUSet(cpu.MaxCPU)
	for _, c := range s.CPUs() {
		u.Set(c)
	}
	if err := unix.SchedSetaffinityDynamic(0, u); err != nil {
		return fmt.Errorf("topo: bind to processors %v: %w%s", s, os.NewSyscallError("sched_setaffinity", err), whyUnbound(os.DirFS("/"), s, err))
	}
	return nil
}

// whyUnbound explains in words for users why the calling thread could not be bound to s,
// behind a colon; "" if the cause is unknown.
func whyUnbound(root fs.FS, s cpu.Set, err error) string {
	switch {
	case errors.Is(err, syscall.EINVAL):
		return outOfReach(root, s)
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EACCES), errors.Is(err, syscall.ENOSYS):
		status, _ := fs.ReadFile(root, "proc/thread-self/status")
		if strings.Contains(string(status), "\nSeccomp:\t2\n") {
			return ": probably the seccomp filter of this process (of its container) forbids it"
		}
		return ": the system, a sandbox or a security module forbids it"
	}
	return ""
}

// outOfReach explains why no processor of s can be used.
func outOfReach(root fs.FS, s cpu.Set) string {
	const control = "outside the cpuset of the control group of this process"
	present, err := readList(root, cpuDir+"/present")
	online, err2 := readList(root, cpuDir+"/online")
	if err != nil || err2 != nil {
		return ": not online, or " + control
	}
	var why []string
	if none := s.Without(present.Or(online)); none.Len() > 0 {
		why = append(why, fmt.Sprintf("the host has no processors %v, only %v", none, present))
	}
	if off := s.And(present).Without(online); off.Len() > 0 {
		why = append(why, fmt.Sprintf("processors %v are offline (%s)", off, path.Join("/", cpuDir, fmt.Sprintf("cpu%d", off.CPUs()[0]), "online")))
	}
	if on := s.And(online); on.Len() > 0 {
		text := fmt.Sprintf("processors %v are %s", on, control)
		if cs, ok := cpuset(root); ok {
			text += fmt.Sprintf(", which has %v", cs)
		}
		why = append(why, text)
	}
	if len(why) == 0 {
		return ": no processor is given"
	}
	return ": " + strings.Join(why, "; ")
}

// cpuset returns the processors of this process's control group, of version 2 or 1, if they
// can be read.
func cpuset(root fs.FS) (cpu.Set, bool) {
	groups, _ := fs.ReadFile(root, "proc/self/cgroup") // "" if the file is missing
	for line := range strings.Lines(string(groups)) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(f) != 3 {
			continue
		}
		var name string
		switch f[1] {
		case "":
			name = path.Join("sys/fs/cgroup", path.Join("/", f[2]), "cpuset.cpus.effective")
		case "cpuset":
			name = path.Join("sys/fs/cgroup/cpuset", path.Join("/", f[2]), "cpuset.effective_cpus")
		default:
			continue
		}
		if s, err := readList(root, name); err == nil && s.Len() > 0 {
			return s, true
		}
	}
	return cpu.Set{}, false
}
