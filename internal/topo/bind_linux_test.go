package topo

import (
	"os"
	"runtime"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/cpu"
)

func TestWhyAThreadCannotBeBound(t *testing.T) {
	t.Parallel()
	const refused = "proc/thread-self/status"
	host := fstest.MapFS{
		cpuDir + "/present": text("0-7"), cpuDir + "/online": text("0-5"),
		"proc/self/cgroup": text("12:cpuset:/job\n0::/job/step"),
	}
	v2, v1 := fstest.MapFS{"sys/fs/cgroup/job/step/cpuset.cpus.effective": text("0-1")}, fstest.MapFS{"sys/fs/cgroup/cpuset/job/cpuset.effective_cpus": text("2")}
	for _, m := range []fstest.MapFS{v2, v1} {
		for name, f := range host {
			m[name] = f
		}
	}
	for _, c := range []struct {
		root fstest.MapFS
		on   cpu.Set
		err  error
		want string
	}{
		{host, cpu.Of(900), syscall.EINVAL, ": the host has no processors 900, only 0-7"},
		{host, cpu.Of(6, 7), syscall.EINVAL, ": processors 6-7 are offline (/sys/devices/system/cpu/cpu6/online)"},
		{host, cpu.Of(4), syscall.EINVAL, ": processors 4 are outside the cpuset of the control group of this process"},
		{v2, cpu.Of(4), syscall.EINVAL, ": processors 4 are outside the cpuset of the control group of this process, which has 0-1"},
		{v1, cpu.Of(4), syscall.EINVAL, ": processors 4 are outside the cpuset of the control group of this process, which has 2"},
		{v2, cpu.Of(5, 6, 8), syscall.EINVAL, ": the host has no processors 8, only 0-7; processors 6 are offline (/sys/devices/system/cpu/cpu6/online); processors 5 are outside the cpuset of the control group of this process, which has 0-1"},
		{host, cpu.Set{}, syscall.EINVAL, ": no processor is given"},
		{fstest.MapFS{}, cpu.Of(4), syscall.EINVAL, ": not online, or outside the cpuset of the control group of this process"},
		{fstest.MapFS{refused: text("Name:\tx\nSeccomp:\t2\nSeccomp_filters:\t1")}, cpu.Of(0), syscall.EPERM, ": probably the seccomp filter of this process (of its container) forbids it"},
		{fstest.MapFS{refused: text("Name:\tx\nSeccomp:\t0")}, cpu.Of(0), syscall.EPERM, ": the system, a sandbox or a security module forbids it"},
		{fstest.MapFS{}, cpu.Of(0), syscall.ENOSYS, ": the system, a sandbox or a security module forbids it"},
		{host, cpu.Of(0), syscall.EFAULT, ""},
	} {
		require.Equal(t, c.want, whyUnbound(c.root, c.on, c.err))
	}
}

// The reasons on this host.
func TestBindThreadGivesTheReason(t *testing.T) {
	t.Parallel()
	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // for ever: the thread ends with the goroutine, and its filter
		failed <- BindThread(cpu.Of(cpu.MaxCPU - 1))
		failed <- forbid(syscall.SYS_SCHED_SETAFFINITY)
		failed <- BindThread(cpu.Allowed())
	}()
	err := <-failed
	require.ErrorIs(t, err, syscall.EINVAL)
	if _, missing := os.Stat("/" + cpuDir + "/present"); missing == nil {
		require.ErrorContains(t, err, "bind to processors 16383: sched_setaffinity: invalid argument: the host has no processors 16383, only ")
	}
	forbidden := <-failed
	err = <-failed
	if forbidden != nil {
		t.Skip("no seccomp filters: ", forbidden)
	}
	require.ErrorIs(t, err, syscall.EPERM)
	require.ErrorContains(t, err, "probably the seccomp filter of this process")
}
