package host

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed33544411/rma/internal/settings"
)

func ok(format string, a ...any) Finding {
	return Finding{Status: OK, Found: fmt.Sprintf(format, a...)}
}

func bad(st Status, fix, format string, a ...any) Finding {
	return Finding{Status: st, Fix: fix, Found: fmt.Sprintf(format, a...)}
}

// minMemlock is room for the rings and buffers of a few dozen peers. The traditional
// default of 64 KiB is not enough for one peer; the 8 MiB of newer kernels are enough for
// four.
const minMemlock = 64 << 20

const capIPCLock = 14

func memlock(s System, v Verbs) Finding {
	n, err := s.Memlock()
	switch {
	case err != nil:
		return bad(Warn, "run `ulimit -l` by hand", "limit of locked memory cannot be read: %v", err)
	case n == math.MaxUint64:
		return ok("locked memory is not limited")
	case hasCap(s.Root, capIPCLock):
		return ok("limit is %s, but this process may exceed it (CAP_IPC_LOCK)", bytesText(n))
	case n >= minMemlock:
		return ok("%s may be locked", bytesText(n))
	}
	st := Warn // shm and tcp lock nothing
	if len(v.Devices) > 0 {
		st = Fail
	}
	return bad(st, "ulimit -l unlimited; for good: a line `* - memlock unlimited` in /etc/security/limits.d/rma.conf, "+
		"LimitMEMLOCK=infinity in a systemd unit, or --ulimit memlock=-1 for a container",
		"only %s may be locked: registering memory with an RDMA device fails with \"cannot allocate memory\"", bytesText(n))
}

// hasCap reports whether the process has an effective capability.
func hasCap(root fs.FS, bit int) bool {
	for l := range strings.Lines(read(root, "proc/self/status")) {
		if hex, found := strings.CutPrefix(l, "CapEff:"); found {
			mask, err := strconv.ParseUint(strings.TrimSpace(hex), 16, 64)
			return err == nil && mask>>bit&1 == 1
		}
	}
	return false
}

func rdma(s System, v Verbs) Finding {
	devs, _ := fs.Glob(s.Root, "sys/class/infiniband/*")
	switch {
	case len(devs) == 0:
		return bad(Warn, "for a software device: modprobe rdma_rxe && rdma link add rxe0 type rxe netdev eth0 "+
			"(packages linux-modules-extra, rdma-core, iproute2)",
			"no RDMA device: --fabric verbs is not available, shm and tcp are")
	case !v.Usable:
		return bad(Fail, "apt-get install libibverbs1 ibverbs-providers; build with CGO_ENABLED=1 and a C compiler (gcc, libc6-dev)",
			"%d RDMA device(s), but verbs cannot be used: %s", len(devs), v.Reason)
	case len(v.Devices) == 0:
		return bad(Fail, "apt-get install ibverbs-providers, and see `rmabench info` and dmesg",
			"%d RDMA device(s) in the kernel, none known to libibverbs", len(devs))
	}
	for _, d := range v.Devices {
		for _, p := range d.Ports {
			if strings.EqualFold(p.State, "active") {
				return ok("%d device(s), %s port %d is active; %s", len(v.Devices), d.Name, p.Number, v.Reason)
			}
		}
	}
	return bad(Fail, "bring the network interface up (ip link set DEV up) and check the cable; `rmabench info` shows the ports",
		"%d device(s), no port is active", len(v.Devices))
}

func permissions(s System, _ Verbs) Finding {
	files, _ := fs.Glob(s.Root, "dev/infiniband/uverbs*")
	slices.Sort(files)
	devs, _ := fs.Glob(s.Root, "sys/class/infiniband/*")
	switch {
	case len(files) == 0 && len(devs) == 0:
		return ok("nothing to open: no RDMA device")
	case len(files) == 0:
		return bad(Fail, "modprobe ib_uverbs; for a container: --device /dev/infiniband",
			"%d RDMA device(s), but no /dev/infiniband/uverbs*", len(devs))
	}
	for _, f := range files {
		if err := s.OpenRW("/" + f); err != nil {
			return bad(Fail, "add the user to the group that owns it (ls -l /"+f+"), or a udev rule "+
				"SUBSYSTEM==\"infiniband_verbs\", MODE=\"0666\"; for a container: --device /"+f,
				"/%s cannot be opened: %v", f, err)
		}
	}
	return ok("%d uverbs device file(s) can be opened", len(files))
}

func gids(_ System, v Verbs) Finding {
	if len(v.Devices) == 0 {
		return ok("no RDMA device")
	}
	var none []string
	for _, d := range v.Devices {
		for _, p := range d.Ports {
			chosen := false
			for _, g := range p.GIDs {
				chosen = chosen || g.Chosen
			}
			if !chosen && strings.EqualFold(p.LinkLayer, "ethernet") {
				none = append(none, fmt.Sprintf("%s port %d (%s)", d.Name, p.Number, cmp.Or(p.Choice, "empty table")))
			}
		}
	}
	if len(none) > 0 {
		return bad(Fail, "give the network interface an IPv4 address (ip addr add … dev DEV); "+
			"in a container the interface must be inside its network namespace",
			"no usable GID: %s", strings.Join(none, ", "))
	}
	return ok("every port has a usable GID (`rmabench info` shows which and why)")
}

func cma(s System, _ Verbs) Finding {
	scope := read(s.Root, "proc/sys/kernel/yama/ptrace_scope")
	err := s.CMA()
	if err == nil {
		return ok("process_vm_readv between processes works%s", prefixed(", ptrace_scope ", scope))
	}
	fix := "for a container: --cap-add SYS_PTRACE or a seccomp profile that allows process_vm_readv, and one user namespace for all ranks"
	if scope != "" && scope != "0" {
		fix = "sysctl -w kernel.yama.ptrace_scope=0"
		if scope == "3" {
			fix += " (3 lasts until a reboot)"
		}
	}
	return bad(Warn, fix, "process_vm_readv between processes fails (%v): shm copies private memory twice", err)
}

func sharedMemory(s System, _ Verbs) Finding {
	const want = 16 << 20
	if err := s.Memfd(want); err != nil {
		return bad(Fail, "raise the memory limit of the container or cgroup, or `ulimit -v`, `ulimit -f`; --fabric tcp works without",
			"no shared memory of 16 MiB (memfd_create): %v", err)
	}
	return ok("16 MiB of shared memory (memfd) made, mapped and touched; /dev/shm is not used")
}

func openFiles(s System, _ Verbs) Finding {
	n, err := s.Files()
	switch {
	case err != nil:
		return bad(Warn, "run `ulimit -n` by hand", "limit of open files cannot be read: %v", err)
	case n < 1024:
		return bad(Warn, "ulimit -n 4096", "only %d open files: each peer takes a few, and over shm each region that is allocated one", n)
	}
	return ok("%d open files", n)
}

func hugepages(s System, _ Verbs) Finding {
	thp := selected(read(s.Root, "sys/kernel/mm/transparent_hugepage/enabled"))
	shmem := selected(read(s.Root, "sys/kernel/mm/transparent_hugepage/shmem_enabled"))
	free := meminfo(s.Root)["HugePages_Free"]
	switch {
	case free > 0:
		return ok("%d huge pages reserved and free; transparent: %s", free, cmp.Or(thp, "unknown"))
	case thp == "" && shmem == "":
		return ok("not visible (kernel without transparent huge pages); nothing here needs them")
	case thp == "never":
		return bad(Warn, "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
			"transparent huge pages are off and none are reserved: large buffers cost more TLB misses")
	}
	return ok("transparent: %s, for shared memory: %s; none reserved (sysctl -w vm.nr_hugepages=N, not needed)", cmp.Or(thp, "unknown"), cmp.Or(shmem, "unknown"))
}

// selected returns the word in brackets, as in "always [madvise] never".
func selected(s string) string {
	_, rest, _ := strings.Cut(s, "[")
	word, _, _ := strings.Cut(rest, "]")
	return word
}

// minSockBuf covers 10 Gbit/s over 3 ms, and a window of 64 KiB messages.
const minSockBuf = 4 << 20

func socketBuffers(s System, _ Verbs) Finding {
	var low, fix []string
	for _, name := range []string{"rmem", "wmem"} {
		f := strings.Fields(read(s.Root, "proc/sys/net/ipv4/tcp_"+name))
		if len(f) != 3 {
			continue
		}
		// The third value is the maximum of TCP's autotuning; net.core.*_max only bounds
		// sizes set explicitly, which the tcp link does not do.
		if n, err := strconv.ParseUint(f[2], 10, 64); err == nil && n < minSockBuf {
			low = append(low, fmt.Sprintf("tcp_%s %s", name, bytesText(n)))
			fix = append(fix, fmt.Sprintf("sysctl -w net.ipv4.tcp_%s='%s %s %d'", name, f[0], f[1], 16<<20))
		}
	}
	core := fmt.Sprintf("net.core.rmem_max %s, wmem_max %s", sizeOf(read(s.Root, "proc/sys/net/core/rmem_max")), sizeOf(read(s.Root, "proc/sys/net/core/wmem_max")))
	if len(low) > 0 {
		return bad(Warn, strings.Join(fix, "; "), "TCP may grow its buffers to too little for fast or long paths: %s (%s)", strings.Join(low, ", "), core)
	}
	return ok("TCP may grow its buffers to at least %s (%s)", bytesText(minSockBuf), core)
}

func sizeOf(s string) string {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return "not visible"
	}
	return bytesText(n)
}

func clockSource(s System, _ Verbs) Finding {
	src := read(s.Root, "sys/devices/system/clocksource/clocksource0/current_clocksource")
	cost := s.ClockCost()
	text := fmt.Sprintf("%s, one reading takes %v", cmp.Or(src, "not visible"), cost)
	if cost > time.Microsecond {
		return bad(Warn, "boot with clocksource=tsc tsc=reliable where the hardware allows; timing here uses the cycle counter, but deadlines pay",
			"%s: each is a system call", text)
	}
	return ok("%s", text)
}

func processors(s System, _ Verbs) Finding {
	if quota := read(s.Root, "sys/fs/cgroup/cpu.max"); quota != "" {
		f := strings.Fields(quota)
		if len(f) == 2 && f[0] != "max" {
			q, err1 := strconv.ParseFloat(f[0], 64)
			p, err2 := strconv.ParseFloat(f[1], 64)
			if errors.Join(err1, err2) == nil && p > 0 && q/p < 2 {
				return bad(Warn, "give the container or cgroup at least 2 CPUs (cpu.max)", "the cgroup may use %.1f CPUs: two polling ranks share them and latency shows the scheduler", q/p)
			}
		}
	}
	if s.CPUs < 2 {
		return bad(Warn, "use a machine or container with 2 CPUs to measure latency", "one processor: two ranks take turns, latency shows the scheduler")
	}
	return ok("%d usable processors", s.CPUs)
}

func governor(s System, _ Verbs) Finding {
	files, _ := fs.Glob(s.Root, "sys/devices/system/cpu/cpu*/cpufreq/scaling_governor")
	seen := map[string]int{}
	for _, f := range files {
		seen[read(s.Root, path.Clean(f))]++
	}
	delete(seen, "")
	names := slices.Sorted(maps.Keys(seen))
	switch {
	case len(names) == 0:
		return ok("not visible (virtual machine, or no frequency scaling)")
	case len(names) == 1 && names[0] == "performance":
		return ok("performance on all processors")
	}
	return bad(Warn, "cpupower frequency-set -g performance", "governor %s: clock changes blur latencies", strings.Join(names, ", "))
}

// configured checks RMA_* variables and the settings file.
func configured(s System, _ Verbs) Finding {
	v, err := s.Settings()
	oneLine := func(err error) string {
		return strings.ReplaceAll(strings.ReplaceAll(err.Error(), "\n\t", "; "), ":;", ":")
	}
	switch {
	case err != nil:
		return bad(Fail, "docs/configuration.md lists what may be set; `rmabench info --settings` shows what is", "%s", oneLine(err))
	case len(v.Unknown) > 0:
		return bad(Warn, "correct or unset it; RMA_STRICT=1 makes such slips an error of Open", "%s", oneLine(v.Unknown))
	}
	n, from := 0, ""
	for _, x := range v.All() {
		if x.Origin != settings.Default && x.Group <= settings.Links {
			n++
		}
	}
	if v.File != "" {
		from = ", file " + v.File
	}
	return ok("%d not at their defaults%s (`rmabench info --settings`)", n, from)
}
