//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// guestKind says whether this process is process 1 of a guest, and of which.
func guestKind() (string, bool) {
	k := os.Getenv("SOFTROCE_GUEST")
	return k, k != "" && os.Getpid() == 1
}

// guestMain is the life of process 1: bring the guest up, run the plan, write
// the result, then wait for the host to end the machine. It does not return.
func guestMain(kind string) {
	res, err := guestRun(kind)
	if err != nil {
		res.Error = err.Error()
		fmt.Fprintf(os.Stderr, "softroce: guest: %v\n", err)
	}
	unix.Sync()
	if err := writeJSON(filepath.Join(ctlMount, resultFile), res); err != nil {
		// without a shared folder the console is all there is; ending the
		// machine tells the host
		fmt.Fprintf(os.Stderr, "softroce: guest: %v\n", err)
		unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART)
	}
	for {
		time.Sleep(time.Hour)
	}
}

func guestRun(kind string) (Result, error) {
	var res Result
	var err error
	switch kind {
	case "qemu":
		err = qemuRoot()
	case "uml":
		err = umlRoot(os.Getenv("SOFTROCE_CTL"))
	default:
		err = fmt.Errorf("unknown guest kind %q", kind)
	}
	if err != nil {
		return res, err
	}
	var plan Plan
	if ok, err := readJSON(filepath.Join(ctlMount, planFile), &plan); err != nil || !ok {
		return res, fmt.Errorf("no plan: %v", err)
	}
	if plan.Out != "" {
		if err := mountOut(kind, plan.Out); err != nil {
			return res, err
		}
	}
	if err := fakeClock(plan.CPUMHz); err != nil {
		return res, err
	}
	if err := limits(); err != nil {
		return res, err
	}
	topo, err := raise(plan.Topology, plan.Node)
	if err != nil {
		return res, err
	}
	res.Ready = uptime()
	stdout, stderr, err := openOutputs(ctlMount)
	if err != nil {
		return res, err
	}
	stop := keepPushing(stdout, stderr)
	res.Steps, err = runSteps(context.Background(), plan, topo, stdout, stderr, reap)
	stop()
	return res, err
}

// qemuRoot turns the initramfs into a root like the host's: modules loaded,
// the host's root read-only over 9p under an overlay in memory.
func qemuRoot() error {
	for _, m := range []mount{
		{"proc", "/proc", "proc", 0, ""},
		{"sysfs", "/sys", "sysfs", 0, ""},
		{"devtmpfs", "/dev", "devtmpfs", 0, ""},
	} {
		if err := m.do(); err != nil {
			return err
		}
	}
	mods, err := filepath.Glob("/mod/*.ko")
	if err != nil {
		return err
	}
	for _, m := range mods { // in name order, which is load order
		if err := insmod(m); err != nil {
			return err
		}
	}
	// loose caching: the host's files do not change under a run. Big messages:
	// a round trip to the emulator costs a tenth of a millisecond.
	const p9 = "trans=virtio,version=9p2000.L,msize=512000"
	for _, m := range []mount{
		{"root", "/host", "9p", unix.MS_RDONLY, p9 + ",cache=loose"},
		{"tmpfs", "/rw", "tmpfs", 0, "mode=755"},
	} {
		if err := m.do(); err != nil {
			return err
		}
	}
	if err := overlay("/host", "/rw", "/new"); err != nil {
		return err
	}
	// no caching for what the host reads while it is written
	return enter("/new", mount{"ctl", ctlMount, "9p", 0, p9 + ",cache=none"})
}

// umlRoot is the same over hostfs, which is the guest's root already.
func umlRoot(ctl string) error {
	for _, m := range []mount{
		{"proc", "/proc", "proc", 0, ""},
		{"tmpfs", "/tmp", "tmpfs", 0, "mode=755"},
	} {
		if err := m.do(); err != nil {
			return err
		}
	}
	if err := overlay("/", "/tmp", "/tmp/new"); err != nil {
		return err
	}
	return enter("/tmp/new", mount{"ctl", ctlMount, "hostfs", 0, ctl})
}

// overlay mounts lower read-only under memory kept in rw, at at.
func overlay(lower, rw, at string) error {
	up, work := filepath.Join(rw, "up"), filepath.Join(rw, "work")
	for _, d := range []string{up, work} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	return mount{"overlay", at, "overlay", 0, "lowerdir=" + lower + ",upperdir=" + up + ",workdir=" + work}.do()
}

// enter completes root with the kernel's file systems and the control folder
// and makes it the root.
func enter(root string, ctl mount) error {
	for _, m := range []mount{
		{"proc", "/proc", "proc", 0, ""},
		{"sysfs", "/sys", "sysfs", 0, ""},
		{"debugfs", "/sys/kernel/debug", "debugfs", 0, ""},
		{"devtmpfs", "/dev", "devtmpfs", 0, ""},
		{"devpts", "/dev/pts", "devpts", 0, "ptmxmode=666,newinstance"},
		{"tmpfs", "/dev/shm", "tmpfs", 0, "mode=1777"},
		{"tmpfs", "/run", "tmpfs", 0, "mode=755"},
		ctl,
	} {
		m.target = root + m.target
		if err := m.do(); err != nil && m.fstype != "debugfs" {
			return err
		}
	}
	if err := unix.Chroot(root); err != nil {
		return fmt.Errorf("chroot %s: %w", root, err)
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	for link, to := range map[string]string{"fd": "", "stdin": "/0", "stdout": "/1", "stderr": "/2"} {
		_ = os.Symlink("/proc/self/fd"+to, "/dev/"+link)
	}
	if err := os.MkdirAll(guestHome, 0o755); err != nil {
		return err
	}
	return unix.Sethostname([]byte("softroce"))
}

// guestHome is HOME inside: the host user's may be out of reach.
const guestHome = "/run/home"

func mountOut(kind, path string) error {
	m := mount{"out", path, "9p", 0, "trans=virtio,version=9p2000.L,msize=512000,cache=mmap"}
	if kind == "uml" {
		m = mount{"out", path, "hostfs", 0, path}
	}
	return m.do()
}

type mount struct {
	source, target, fstype string
	flags                  uintptr
	data                   string
}

func (m mount) do() error {
	if err := os.MkdirAll(m.target, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(m.source, m.target, m.fstype, m.flags, m.data); err != nil {
		return fmt.Errorf("mount %s on %s: %w", m.fstype, m.target, err)
	}
	return nil
}

func insmod(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.FinitModule(int(f.Fd()), "", 0); err != nil && err != unix.EEXIST {
		return fmt.Errorf("load %s: %w", filepath.Base(path), err)
	}
	return nil
}

// fakeClock gives /proc/cpuinfo the clock line that perftest reads and a
// User-Mode Linux kernel does not print.
func fakeClock(mhz string) error {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil || mhz == "" || strings.Contains(string(b), "cpu MHz") {
		return err
	}
	text := addClock(string(b), mhz)
	if err := os.WriteFile("/run/cpuinfo", []byte(text), 0o444); err != nil {
		return err
	}
	if err := unix.Mount("/run/cpuinfo", "/proc/cpuinfo", "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind /proc/cpuinfo: %w", err)
	}
	return nil
}

// addClock puts a clock line after each processor line.
func addClock(cpuinfo, mhz string) string {
	var out strings.Builder
	for _, l := range strings.SplitAfter(cpuinfo, "\n") {
		out.WriteString(l)
		if strings.HasPrefix(l, "processor") {
			fmt.Fprintf(&out, "cpu MHz\t\t: %s\n", mhz)
		}
	}
	return out.String()
}

// limits: registered memory and files without bound, as a machine set up for
// RDMA has them.
func limits() error {
	inf := &syscall.Rlimit{Cur: ^uint64(0), Max: ^uint64(0)}
	if err := syscall.Setrlimit(unix.RLIMIT_MEMLOCK, inf); err != nil {
		return fmt.Errorf("set memlock limit: %w", err)
	}
	files := &syscall.Rlimit{Cur: 65536, Max: 65536}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, files); err != nil {
		return fmt.Errorf("set file limit: %w", err)
	}
	return nil
}

func uptime() float64 {
	var s float64
	if b, err := os.ReadFile("/proc/uptime"); err == nil {
		fmt.Sscan(string(b), &s)
	}
	return s
}

// reap kills everything but this process and waits until it is gone: nothing
// a step leaves behind disturbs the next.
func reap() {
	_ = unix.Kill(-1, unix.SIGKILL)
	for {
		_, err := unix.Wait4(-1, nil, 0, nil)
		if err != nil && err != unix.EINTR {
			return
		}
	}
}
