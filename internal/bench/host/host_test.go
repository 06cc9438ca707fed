package host

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"math"
	"os"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/bulk"
	"github.com/seed33544411/rma/internal/settings"

	"github.com/seed33544411/rma/internal/testutil"
)

func TestMain(m *testing.M) {
	ServeCMA()
	testutil.Main(m)
}

func file(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s + "\n")} }

// healthy is a machine without faults.
func healthy() (System, fstest.MapFS, *Verbs) {
	root := fstest.MapFS{
		"proc/self/status":                                                file("Name:\tx\nCapEff:\t0000000000000000"),
		"proc/meminfo":                                                    file("MemTotal:  16000000 kB\nMemAvailable:  8000000 kB\nHugePages_Free:  0"),
		"proc/sys/net/ipv4/tcp_rmem":                                      file("4096\t131072\t6291456"),
		"proc/sys/net/ipv4/tcp_wmem":                                      file("4096\t16384\t4194304"),
		"proc/sys/net/core/rmem_max":                                      file("212992"),
		"proc/sys/kernel/yama/ptrace_scope":                               file("0"),
		"sys/kernel/mm/transparent_hugepage/enabled":                      file("always [madvise] never"),
		"sys/kernel/mm/transparent_hugepage/shmem_enabled":                file("always within_size advise [never] deny force"),
		"sys/class/infiniband/rxe0/x":                                     file(""),
		"dev/infiniband/uverbs0":                                          file(""),
		"sys/devices/system/clocksource/clocksource0/current_clocksource": file("tsc"),
		"sys/devices/system/cpu/cpu0/cpufreq/scaling_governor":            file("performance"),
		"sys/devices/system/cpu/cpu0/cache/index0/type":                   file("Data"),
		"sys/devices/system/cpu/cpu0/cache/index0/level":                  file("1"),
		"sys/devices/system/cpu/cpu0/cache/index0/size":                   file("48K"),
		"sys/devices/system/cpu/cpu0/cache/index0/coherency_line_size":    file("64"),
		"sys/devices/system/cpu/cpu0/cache/index0/shared_cpu_list":        file("0-1"),
		"sys/devices/system/cpu/cpu0/cache/index1/type":                   file("Instruction"),
		"sys/devices/system/node/node0/x":                                 file(""),
		"sys/fs/cgroup/cpu.max":                                           file("max 100000"),
	}
	v := &Verbs{Usable: true, Reason: "libibverbs found", Devices: []Device{{Name: "rxe0", NetDev: []string{"eth0"}, Limits: "32 SGE",
		Ports: []Port{{Number: 1, State: "active", LinkLayer: "Ethernet", MTU: "1024", Choice: "GID 1: RoCE v2",
			GIDs: []GID{{Index: 0, GID: "fe80::1", Type: "RoCE v1"}, {Index: 1, GID: "::ffff:10.0.0.1", Type: "RoCE v2", NetDev: "eth0", Chosen: true, Why: "routable"}}}}}}}
	s := System{
		Root: root, Memlock: func() (uint64, error) { return math.MaxUint64, nil }, Files: func() (uint64, error) { return 4096, nil },
		OpenRW: func(string) error { return nil }, Memfd: func(int) error { return nil }, CMA: func() error { return nil },
		ClockCost: func() time.Duration { return 30 }, CPUs: 4,
		Links: func() []Link {
			return []Link{{Name: "shm", Usable: true, Detail: "cma"}, {Name: "verbs", Why: "no device"}}
		},
		Verbs: func() Verbs { return *v },
		Settings: func() (*settings.Values, error) {
			return settings.Load(settings.Source{Environ: []string{"RMA_FABRIC=tcp"}})
		},
	}
	return s, root, v
}

func TestDoctorFindsNothingOnAHealthyMachine(t *testing.T) {
	t.Parallel()
	s, _, _ := healthy()
	fs := Diagnose(s)
	require.Len(t, fs, 14)
	for _, f := range fs {
		require.Equal(t, OK, f.Status, "%+v", f)
		require.Empty(t, f.Fix)
		require.NotEmpty(t, f.Found)
	}
	require.False(t, Failed(fs))
}

// One fault at a time: the check for it, and no other, reports it and names the remedy.
func TestDoctorFindsEachFault(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil  func(*System, fstest.MapFS, *Verbs)
		check  string
		status Status
		fix    string
	}{
		"memlock with a device": {func(s *System, _ fstest.MapFS, _ *Verbs) {
			s.Memlock = func() (uint64, error) { return 65536, nil }
		}, "memlock", Fail, "ulimit -l unlimited"},
		"memlock without a device": {func(s *System, r fstest.MapFS, v *Verbs) {
			s.Memlock = func() (uint64, error) { return 8 << 20, nil }
			delete(r, "sys/class/infiniband/rxe0/x")
			delete(r, "dev/infiniband/uverbs0")
			v.Devices = nil
		}, "memlock", Warn, "limits.d"},
		"memlock unreadable": {func(s *System, _ fstest.MapFS, _ *Verbs) {
			s.Memlock = func() (uint64, error) { return 0, errors.New("x") }
		}, "memlock", Warn, "ulimit -l"},
		"no device": {func(_ *System, r fstest.MapFS, v *Verbs) {
			delete(r, "sys/class/infiniband/rxe0/x")
			delete(r, "dev/infiniband/uverbs0")
			v.Devices = nil
		}, "rdma", Warn, "rdma link add"},
		"no library": {func(_ *System, _ fstest.MapFS, v *Verbs) {
			*v = Verbs{Reason: "libibverbs not found"}
		}, "rdma", Fail, "apt-get install"},
		"no provider": {func(_ *System, _ fstest.MapFS, v *Verbs) { v.Devices = nil }, "rdma", Fail, "ibverbs-providers"},
		"port down":   {func(_ *System, _ fstest.MapFS, v *Verbs) { v.Devices[0].Ports[0].State = "down" }, "rdma", Fail, "ip link set"},
		"no uverbs":   {func(_ *System, r fstest.MapFS, _ *Verbs) { delete(r, "dev/infiniband/uverbs0") }, "rdma permissions", Fail, "modprobe ib_uverbs"},
		"no permission": {func(s *System, _ fstest.MapFS, _ *Verbs) {
			s.OpenRW = func(p string) error { return &fs.PathError{Op: "open", Path: p, Err: fs.ErrPermission} }
		}, "rdma permissions", Fail, "/dev/infiniband/uverbs0"},
		"no gid": {func(_ *System, _ fstest.MapFS, v *Verbs) { v.Devices[0].Ports[0].GIDs = nil }, "gid", Fail, "ip addr add"},
		"cma by yama": {func(s *System, r fstest.MapFS, _ *Verbs) {
			s.CMA = func() error { return errors.New("operation not permitted") }
			r["proc/sys/kernel/yama/ptrace_scope"] = file("1")
		}, "cma", Warn, "sysctl -w kernel.yama.ptrace_scope=0"},
		"cma by seccomp": {func(s *System, _ fstest.MapFS, _ *Verbs) {
			s.CMA = func() error { return errors.New("operation not permitted") }
		}, "cma", Warn, "SYS_PTRACE"},
		"no memfd": {func(s *System, _ fstest.MapFS, _ *Verbs) {
			s.Memfd = func(int) error { return errors.New("no space") }
		}, "shared memory", Fail, "memory limit"},
		"few files": {func(s *System, _ fstest.MapFS, _ *Verbs) {
			s.Files = func() (uint64, error) { return 256, nil }
		}, "open files", Warn, "ulimit -n"},
		"no thp": {func(_ *System, r fstest.MapFS, _ *Verbs) {
			r["sys/kernel/mm/transparent_hugepage/enabled"] = file("always madvise [never]")
		}, "hugepages", Warn, "madvise >"},
		"small sockets": {func(_ *System, r fstest.MapFS, _ *Verbs) {
			r["proc/sys/net/ipv4/tcp_rmem"] = file("4096 131072 212992")
		}, "socket buffers", Warn, "net.ipv4.tcp_rmem='4096 131072 16777216'"},
		"slow clock": {func(s *System, _ fstest.MapFS, _ *Verbs) {
			s.ClockCost = func() time.Duration { return 13 * time.Microsecond }
		}, "clock source", Warn, "clocksource=tsc"},
		"one cpu": {func(s *System, _ fstest.MapFS, _ *Verbs) { s.CPUs = 1 }, "processors", Warn, "2 CPUs"},
		"cpu quota": {func(_ *System, r fstest.MapFS, _ *Verbs) {
			r["sys/fs/cgroup/cpu.max"] = file("150000 100000")
		}, "processors", Warn, "cpu.max"},
		"powersave": {func(_ *System, r fstest.MapFS, _ *Verbs) {
			r["sys/devices/system/cpu/cpu1/cpufreq/scaling_governor"] = file("powersave")
		}, "cpu governor", Warn, "cpupower"},
		"a setting that makes no sense": {func(s *System, _ fstest.MapFS, _ *Verbs) {
			s.Settings = func() (*settings.Values, error) {
				return settings.Load(settings.Source{Environ: []string{"RMA_DEPTH=1", "RMA_MODE=fast"}})
			}
		}, "settings", Fail, "info --settings"},
		"a variable that is misspelt": {func(s *System, _ fstest.MapFS, _ *Verbs) {
			s.Settings = func() (*settings.Values, error) {
				return settings.Load(settings.Source{Environ: []string{"RMA_TEST_=1", "RMA_=1", "RMA_MODUS=eager"}})
			}
		}, "settings", Warn, "unset it"},
	} {
		s, root, v := healthy()
		c.spoil(&s, root, v)
		fs := Diagnose(s)
		found := false
		for _, f := range fs {
			if f.Check != c.check {
				continue
			}
			found = true
			require.Equal(t, c.status, f.Status, "%s: %+v", name, f)
			require.Contains(t, f.Fix, c.fix, name)
		}
		require.True(t, found, name)
		require.Equal(t, c.status == Fail, Failed(fs), name)
		var b bytes.Buffer
		require.NoError(t, WriteFindings(&b, fs))
		require.Contains(t, b.String(), c.fix, name)
	}
}

func TestMemlockCapability(t *testing.T) {
	t.Parallel()
	s, root, v := healthy()
	s.Memlock = func() (uint64, error) { return 65536, nil }
	root["proc/self/status"] = file("CapEff:\t0000000000004000")
	require.Equal(t, OK, memlock(s, *v).Status)
}

func TestNothingVisibleIsNotAFault(t *testing.T) {
	t.Parallel()
	s, _, _ := healthy()
	s.Root = fstest.MapFS{}
	s.Verbs = func() Verbs { return Verbs{Reason: "no cgo"} }
	for _, f := range Diagnose(s) {
		require.NotEqual(t, Fail, f.Status, "%+v", f)
	}
}

func TestInfo(t *testing.T) {
	t.Parallel()
	s, _, _ := healthy()
	in := Collect(s)
	require.Equal(t, []Cache{{Level: 1, Type: "Data", Size: 48 << 10, Line: 64, Shared: "0-1"}}, in.Caches)
	require.Equal(t, uint64(16000000<<10), in.MemTotal)
	require.Equal(t, 1, in.Nodes)
	var b bytes.Buffer
	require.NoError(t, in.WriteText(&b))
	for _, want := range []string{"L1 data", "48 KiB, line 64", "not usable: no device", "usable; cma", "* gid  1  ::ffff:10.0.0.1", "choice: GID 1", "15.26 GiB", "rxe0 on eth0"} {
		require.Contains(t, b.String(), want)
	}
	j, err := json.Marshal(in)
	require.NoError(t, err)
	var back Info
	require.NoError(t, json.Unmarshal(j, &back))
	require.Equal(t, in, back)
}

func TestInfoReportsAWriterThatFails(t *testing.T) {
	t.Parallel()
	s, _, _ := healthy()
	require.ErrorIs(t, Collect(s).WriteText(failing{}), os.ErrClosed)
	require.ErrorIs(t, WriteFindings(failing{}, Diagnose(s)), os.ErrClosed)
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, os.ErrClosed }

// The queries work on the real machine.
func TestRealSystem(t *testing.T) {
	s := Real()
	n, err := s.Memlock()
	require.NoError(t, err)
	require.NotZero(t, n)
	files, err := s.Files()
	require.NoError(t, err)
	require.NotZero(t, files)
	require.NoError(t, s.Memfd(1<<20))
	require.Greater(t, s.ClockCost(), time.Duration(0))
	require.Error(t, s.OpenRW("/nonexistent/uverbs0"))
	require.NotZero(t, meminfo(s.Root)["MemTotal"])
	s.Links = func() []Link { return nil }
	s.Verbs = func() Verbs { return Verbs{Reason: "not asked"} }
	in := Collect(s)
	require.NotEmpty(t, in.Machine.Kernel)
	require.NotZero(t, in.MemTotal)
	for _, f := range Diagnose(s) {
		require.NotEmpty(t, f.Found, f.Check)
		if f.Status != OK {
			require.NotEmpty(t, f.Fix, f.Check)
		}
	}
}

// The transfer is real. The machine decides whether the kernel allows it; if not, the reason
// must be the kernel's.
func TestCMAIsARealTransfer(t *testing.T) {
	err := CheckCMA()
	if err != nil {
		require.Contains(t, err.Error(), "process_vm_readv", "the child must have tried")
		t.Logf("this machine refuses: %v", err)
	}
	require.Error(t, copyParent("1 2 3"))
	require.Error(t, copyParent("x"))
}

func TestBytesText(t *testing.T) {
	t.Parallel()
	for n, want := range map[uint64]string{0: "0 B", 1023: "1023 B", 1024: "1 KiB", 1536: "1.5 KiB", 8 << 20: "8 MiB", 1 << 30: "1 GiB"} {
		require.Equal(t, want, bytesText(n))
	}
	require.True(t, strings.HasSuffix(bytesText(123456789012), " GiB"))
}

func TestCopiesInInfo(t *testing.T) {
	s, root, _ := healthy()
	root["sys/devices/system/cpu/online"] = file("0-1")
	c := copies(s.Root)
	require.Equal(t, bulk.Kernel(), c.Kernel)
	if c.Stream != 0 { // an L1 of 48 KiB for two: the least size of non-temporal copies
		require.EqualValues(t, bulk.MinStream, c.Stream)
	}
	require.Contains(t, c.text(), "before sampling")
	require.Contains(t, Copies{Kernel: "none"}.text(), "never")
	require.Contains(t, Copies{Placement: "l3"}.text(), "host-l3")
	delete(root, "sys/devices/system/cpu/online")
	require.NotEmpty(t, copies(s.Root).text(), "this host's own")
}
