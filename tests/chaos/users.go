//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// users runs an intrusion as another user of the host: it tries to access the files of the
// ranks' processes and their memory, the job's directory and shared memory, and every socket,
// on which it claims to belong to the job. It gains no access, and the job is not affected.
func users(ctx context.Context, r *round) {
	if os.Geteuid() != 0 {
		r.leaveOut(errors.New("to be another user needs root"))
		return
	}
	s := jobSpec{Ranks: 2, Fabric: pick(r, "shm", "shm", "tcp"), Root: pick(r, "unix", "tcp"), Open: true}
	s.NoToken = s.Root == "unix" && r.IntN(2) == 0 // membership of the job then follows from the user
	s.Work = work{Ops: some(r, 1+r.IntN(3), pairNames()), Seed: r.Uint64(), Max: 1 << (12 + r.IntN(6))}
	j := begin(r, s)
	if j == nil {
		return
	}
	defer j.kill()
	in := intrusion{Dir: j.dir, Addrs: []string{strings.TrimPrefix(j.addr, "tcp:")}}
	for _, p := range j.procs {
		in.Pids = append(in.Pids, p.cmd.Process.Pid)
		in.Addrs = append(in.Addrs, listening(p.cmd.Process.Pid)...)
		cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.cmd.Process.Pid))
		if len(j.token) > 0 && strings.Contains(string(cmdline), fmt.Sprintf("%x", j.token)) {
			r.fault("rank %d: everybody can read the secret on its command line", p.rank)
		}
	}
	got, tried, err := in.as(ctx, nobody)
	if err != nil {
		r.fault("the other user: %v", err)
		return
	}
	r.count("things that another user tried", tried)
	for _, g := range got {
		r.fault("%s, %s (secret: %v): another user %s", s.Fabric, s.Root, !s.NoToken, g)
	}
	unharmed(r, j, "beside another user")
}

// nobody is a user unrelated to the job.
const nobody = 65534

// intruderEnv holds an intrusion; its presence makes the process the other user's.
const intruderEnv = "CHAOS_INTRUSION"

// intrusion is another user's knowledge of a job: what the system shows to everyone.
type intrusion struct {
	Pids  []int
	Dir   string
	Addrs []string // of the wire-up server, and those that the ranks listen on
}

// as runs the intrusion as another user, and returns its successes and the number of its
// attempts.
func (in intrusion) as(ctx context.Context, uid uint32) (got []string, tried int, err error) {
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		return nil, 0, err
	}
	defer self.Close()
	spec, err := json.Marshal(in)
	if err != nil {
		return nil, 0, err
	}
	ctx, stop := context.WithTimeout(ctx, endLimit)
	defer stop()
	cmd := exec.CommandContext(ctx, "/proc/self/fd/3") // its directory may be closed to that user
	cmd.ExtraFiles = []*os.File{self}
	cmd.Env = []string{intruderEnv + "=" + string(spec)}
	cmd.Dir = "/"
	cmd.SysProcAttr = asUser(uid)
	var complaints strings.Builder
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		return nil, 0, fmt.Errorf("%w: %s", err, complaints.String())
	}
	for line := range strings.Lines(string(out)) {
		if _, err := fmt.Sscanf(line, "tried %d\n", &tried); err != nil {
			got = append(got, strings.TrimSpace(line))
		}
	}
	return got, tried, nil
}

// asUser starts a process as that user: this process's user unless it is root.
func asUser(uid uint32) *syscall.SysProcAttr {
	c := &syscall.Credential{Uid: uid, Gid: uid}
	if os.Geteuid() != 0 {
		c.Gid, c.NoSetGroups = uint32(os.Getgid()), true
	}
	return &syscall.SysProcAttr{Credential: c, Pdeathsig: syscall.SIGKILL}
}

// intruder is the process of the other user, which reports its successes.
type intruder struct {
	intrusion
	tried int
}

// runIntruder is the intruder's main.
func runIntruder(spec string) error {
	var in intruder
	if err := json.Unmarshal([]byte(spec), &in.intrusion); err != nil {
		return err
	}
	if os.Getuid() == 0 {
		return errors.New("this is root, not another user")
	}
	for _, pid := range in.Pids {
		in.process(pid)
	}
	in.files("/dev/shm")
	in.files(in.Dir)
	in.sockets()
	fmt.Printf("tried %d\n", in.tried)
	return nil
}

// got records a success unless err is set.
func (in *intruder) got(err error, format string, args ...any) {
	in.tried++
	if err == nil {
		fmt.Printf(format+"\n", args...)
	}
}

// process tries to access a process of the job.
func (in *intruder) process(pid int) {
	for _, name := range []string{"environ", "maps", "mem", "fd", "fdinfo", "map_files", "auxv", "exe", "cwd", "root", "stack", "syscall"} {
		path := fmt.Sprintf("/proc/%d/%s", pid, name)
		f, err := os.Open(path)
		if err == nil {
			if st, serr := f.Stat(); serr == nil && st.IsDir() {
				_, err = f.Readdirnames(1)
			} else {
				_, err = f.Read(make([]byte, 1))
			}
			f.Close()
		}
		in.got(err, "read %s", path)
	}
	for fd := range 64 { // memory files, by number
		for _, dir := range []string{"fd", "map_files"} {
			f, err := os.OpenFile(fmt.Sprintf("/proc/%d/%s/%d", pid, dir, fd), os.O_RDWR, 0)
			f.Close()
			in.got(err, "opened descriptor %d of process %d", fd, pid)
		}
	}
	b := make([]byte, 8)
	local := []unix.Iovec{{Base: &b[0]}}
	local[0].SetLen(len(b))
	_, err := unix.ProcessVMReadv(pid, local, []unix.RemoteIovec{{Base: 0x400000, Len: len(b)}}, 0)
	in.refused(err, "process_vm_readv of process %d", pid)
	_, err = unix.ProcessVMWritev(pid, local, []unix.RemoteIovec{{Base: 0x400000, Len: len(b)}}, 0)
	in.refused(err, "process_vm_writev of process %d", pid)
	in.refused(unix.PtraceAttach(pid), "ptrace of process %d", pid)
	in.refused(unix.Kill(pid, 0), "signal to process %d", pid)
	if pidfd, err := unix.PidfdOpen(pid, 0); err == nil {
		for fd := range 64 {
			_, err := unix.PidfdGetfd(pidfd, fd, 0)
			in.got(err, "took descriptor %d of process %d", fd, pid)
		}
		unix.Close(pidfd)
	}
}

// refused records a success unless the system refused for lack of permission.
func (in *intruder) refused(err error, format string, args ...any) {
	in.tried++
	if !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.ENOSYS) {
		fmt.Printf("was allowed "+format+" (%v)\n", append(args, err)...)
	}
}

// files tries to read and change the files of other users in a directory.
func (in *intruder) files(dir string) {
	_ = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Type()&os.ModeSocket != 0 {
			return nil //nolint:nilerr // what cannot be seen is not opened
		}
		for _, mode := range []int{os.O_RDONLY, os.O_WRONLY} {
			f, err := os.OpenFile(path, mode, 0)
			f.Close()
			if strings.Contains(path, "rma") || strings.HasPrefix(path, in.Dir) {
				in.got(err, "opened %s (mode %d)", path, mode)
			}
		}
		return nil
	})
}

// sockets connects to every socket that the job listens on, sends something, and checks the
// answer: it contains nothing of the job, in particular no descriptor.
func (in *intruder) sockets() {
	for _, addr := range in.Addrs {
		network, address := "tcp", addr
		if path, is := strings.CutPrefix(addr, "unix:"); is {
			network, address = "unix", path
		}
		c, err := net.DialTimeout(network, address, time.Second)
		if err != nil {
			in.tried++
			continue
		}
		_ = c.SetDeadline(time.Now().Add(time.Second))
		_, _ = c.Write(slices.Repeat([]byte{1}, 200))
		b, _ := io.ReadAll(io.LimitReader(c, 4096))
		c.Close()
		if in.tried++; len(b) > 512 {
			fmt.Printf("was told %d bytes by %s\n", len(b), addr)
		}
	}
	for _, name := range unixSockets() {
		if strings.HasPrefix(name, "@rma-") || strings.HasPrefix(name, in.Dir) {
			in.descriptors(name)
		}
	}
}

// unixSockets returns the addresses of Unix sockets of this host, which every user can
// read.
func unixSockets() (names []string) {
	f, err := os.Open("/proc/net/unix")
	if err != nil {
		return nil
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if w := strings.Fields(lines.Text()); len(w) > 7 {
			names = append(names, w[7])
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// descriptors connects to a Unix socket of any kind and asks for descriptors.
func (in *intruder) descriptors(name string) {
	for _, kind := range []int{unix.SOCK_STREAM, unix.SOCK_SEQPACKET} {
		fd, err := unix.Socket(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			continue
		}
		in.tried++
		_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 1})
		if unix.Connect(fd, &unix.SockaddrUnix{Name: name}) == nil {
			_ = unix.Send(fd, slices.Repeat([]byte{1}, 64), unix.MSG_NOSIGNAL)
			b, oob := make([]byte, 4096), make([]byte, 256)
			for {
				n, oobn, _, _, err := unix.Recvmsg(fd, b, oob, unix.MSG_CMSG_CLOEXEC)
				if err != nil || n == 0 && oobn == 0 {
					break
				}
				if oobn > 0 {
					fmt.Printf("was given a descriptor by %s\n", name)
				}
			}
		}
		unix.Close(fd)
	}
}
