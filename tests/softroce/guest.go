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

// guestKind reports whether this process is process 1 of a guest, and the guest's kind.
func guestKind() (string, bool) {
	k := os.Getenv("SOFTROCE_GUEST")
	return k, k != "" && os.Getpid() == 1
}

// guestMain is the main function of process 1: it sets up the guest, runs the plan, writes
// the result, then waits for the host to end the machine. It does not return.
func guestMain(kind string) {
	res, err := guestRun(kind)
	if err != nil {
		res.Error = err.Error()
		fmt.Fprintf(os.Stderr, "softroce: guest: %v\n", err)
	}
	unix.Sync()
	if err := writeJSON(filepath.Join(ctlMount, resultFile), res); err != nil {
		// without a shared directory there is only the console; ending the machine informs the
		// host
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

// qemuRoot turns the initramfs into a root like the host's: it loads modules and mounts the
// host's root read-only over 9p under an overlay in memory.
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
	// loose caching: the host's files do not change during a run. Big messages: a round trip
	// to the emulator takes a tenth of a millisecond.
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
	// no caching for files that the host reads while they are written
	return enter("/new", mount{"ctl", ctlMount, "9p", 0, p9 + ",cache=none"})
}

// umlRoot does the same over hostfs, which is the guest's root already.
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

// overlay mounts lower read-only at at, under a writable layer in memory at rw.
func overlay(lower, rw, at string) error {
	up, work := filepath.Join(rw, "up"), filepath.Join(rw, "work")
	for _, d := range []string{up, work} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	return mount{"overlay", at, "overlay", 0, "lowerdir=" + lower + ",upperdir=" + up + ",workdir=" + work}.do()
}

// enter mounts the kernel's file systems and the control directory in root and makes it the
// root.
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

// guestHome is HOME inside: the host user's may be inaccessible.
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

// fakeClock adds the clock line to /proc/cpuinfo that perftest reads and a User-Mode Linux
// kernel does not print.
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

// addClock inserts a clock line after each processor line.
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

// limits removes the limits of registered memory and files, as on a machine set up for
// RDMA.
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

// reap kills all processes but this one and waits until they are gone: no step disturbs the
// next.
func reap() {
	_ = unix.Kill(-1, unix.SIGKILL)
	for {
		_, err := unix.Wait4(-1, nil, 0, nil)
		if err != nil && err != unix.EINTR {
			return
		}
	}
}
