//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/seed33544411/rma/internal/bytesize"
	"github.com/seed33544411/rma/internal/cpu"
)

// qemu starts Debian's kernel in an emulated PC.
type qemu struct {
	kernel *qemuKernel
	opt    Options
	self   string // this binary, process 1 of the guest
}

// qemuCmdline makes a quiet, quick boot. Mitigations take time in emulation and protect
// nothing here; expedited RCU shortens device set-up.
const qemuCmdline = "console=ttyS0 quiet loglevel=4 panic=-1 reboot=t mitigations=off nopti nokaslr " +
	"tsc=reliable no_timer_check audit=0 apparmor=0 rcupdate.rcu_expedited=1 cryptomgr.notests " +
	"random.trust_cpu=on 8250.nr_uarts=1 rdinit=/init SOFTROCE_GUEST=qemu"

// clock tells the kernel the frequency of its time stamp counter, which in emulation is the
// host's. The kernel's own measurement at boot fails when the host is busy: then its clock
// runs at several times the speed for good.
func clock() string { return fmt.Sprintf(" tsc_early_khz=%.0f", 1e6/cpu.NsPerTick()) }

func (q *qemu) cpu(int) int { return -1 }

func (q *qemu) command(ctx context.Context, g guestSpec) (*exec.Cmd, error) {
	initrd := filepath.Join(g.ctl, "initramfs")
	if err := q.writeInitramfs(initrd); err != nil {
		return nil, err
	}
	smp, mem := q.opt.SMP, q.opt.Mem
	if smp == 0 {
		smp = defaultSMP
		if g.wire != nil {
			smp = 1
		}
	}
	if mem == "" {
		mem = "3G"
		if g.wire != nil {
			mem = "2G"
		}
	}
	accel, model := "tcg,thread=multi,tb-size=512", "Nehalem" // Nehalem: later models have rep movsb, emulated byte by byte
	if q.opt.Accel == "kvm" {
		accel, model = "kvm", "host"
	}
	args := []string{
		"-M", "q35", "-accel", accel, "-cpu", model, "-smp", strconv.Itoa(smp), "-m", mem,
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-serial", "file:" + comma(filepath.Join(g.ctl, "console")),
		"-kernel", q.kernel.vmlinux, "-initrd", initrd, "-append", qemuCmdline + clock(),
	}
	if q.opt.NUMA > 0 {
		nodes, err := numaNodes(q.opt.NUMA, smp, mem)
		if err != nil {
			return nil, err
		}
		args = append(args, nodes...)
	}
	share := func(tag, path string, opts string) {
		args = append(args,
			"-fsdev", "local,id="+tag+",path="+comma(path)+",security_model=none"+opts,
			"-device", "virtio-9p-pci,fsdev="+tag+",mount_tag="+tag)
	}
	share("root", "/", ",readonly=on,multidevs=remap")
	share("ctl", g.ctl, "")
	if g.plan.Out != "" {
		share("out", g.plan.Out, ",multidevs=remap")
	}
	if g.wire != nil {
		args = append(args,
			"-netdev", "dgram,id=wire,local.type=fd,local.str=3",
			"-device", fmt.Sprintf("virtio-net-pci,netdev=wire,mac=52:54:00:00:00:%02x,host_mtu=%d,romfile=", g.plan.Node+1, wireMTU))
	}
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64", args...)
	log, err := os.Create(filepath.Join(g.ctl, "machine.log"))
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = log, log
	if g.wire != nil {
		cmd.ExtraFiles = []*os.File{g.wire}
	}
	return cmd, nil
}

// defaultSMP is the number of CPUs of a guest that is alone.
const defaultSMP = 2

// numaNodes returns qemu's arguments for n nodes, among which CPUs and memory are divided.
func numaNodes(n, smp int, mem string) (args []string, err error) {
	bytes, err := bytesize.Parse(mem)
	if err != nil {
		return nil, usagef("-mem %q: %v", mem, err)
	}
	if bytes%(int64(n)<<20) != 0 {
		return nil, usagef("-mem %s: want the same number of MiB for each of %d nodes", mem, n)
	}
	for i := range n {
		args = append(args,
			"-object", fmt.Sprintf("memory-backend-ram,id=node%d,size=%d", i, bytes/int64(n)),
			"-numa", fmt.Sprintf("node,nodeid=%d,cpus=%d-%d,memdev=node%d", i, i*smp/n, (i+1)*smp/n-1, i))
	}
	return args, nil
}

// comma doubles commas, qemu's escape in option values.
func comma(s string) string { return strings.ReplaceAll(s, ",", ",,") }

// writeInitramfs writes the cached modules and this binary as /init: two consecutive cpio
// archives are one initramfs.
func (q *qemu) writeInitramfs(path string) error {
	self, err := os.ReadFile(q.self)
	if err != nil {
		return err
	}
	mods, err := os.Open(q.kernel.modules)
	if err != nil {
		return err
	}
	defer mods.Close()
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := io.Copy(f, mods); err != nil {
		return err
	}
	cp := newCpio(f)
	cp.File("init", 0o755, self)
	if err := cp.Close(); err != nil {
		return err
	}
	return f.Close()
}
