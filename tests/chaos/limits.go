//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// calls maps system calls of the engine to the errors that each may end in.
var calls = map[string][]string{
	"socket": {"EMFILE", "ENFILE", "ENOMEM"}, "accept4": {"EMFILE", "ECONNABORTED", "ENOMEM"}, "connect": {"ENOMEM", "EINTR"},
	"sendmsg": {"ENOBUFS", "ENOMEM", "EINTR"}, "recvmsg": {"ENOMEM", "EINTR"}, "memfd_create": {"EMFILE", "ENOMEM"},
	"ftruncate": {"ENOSPC", "ENOMEM"}, "fallocate": {"ENOSPC", "ENOMEM", "EINTR"}, "process_vm_writev": {"ENOMEM", "EPERM"},
	"process_vm_readv": {"ENOMEM", "EPERM"}, "eventfd2": {"EMFILE", "ENOMEM"}, "epoll_ctl": {"ENOMEM", "ENOSPC"},
	"epoll_create1": {"EMFILE", "ENOMEM"}, "setsockopt": {"ENOMEM", "ENOBUFS"}, "listen": {"EADDRINUSE"}, "pidfd_open": {"EMFILE"},
}

// limits restricts the resources of one rank: few descriptors, little memory, address space
// or locked memory, or a system call that fails. The rank works, or ends its operations in
// typed errors; neither it nor another rank crashes or hangs.
func limits(ctx context.Context, r *round) {
	s := jobSpec{Ranks: pick(r, 2, 3), Fabric: pick(r, "shm", "tcp"), Root: pick(r, "unix", "tcp")}
	s.Work = work{Ops: some(r, 1+r.IntN(4), pairNames()), Seed: r.Uint64(), Max: 1 << (12 + r.IntN(9))}
	poor := r.IntN(s.Ranks)
	wrap, what, group, err := poverty(r)
	if err != nil {
		r.leaveOut(err)
		return
	}
	if group != nil {
		defer group.close()
	}
	s.Wrap = func(rank int, argv []string) []string {
		if rank == poor {
			return append(wrap, argv...)
		}
		return argv
	}
	s.Env = []string{"RMA_TIMEOUT=20s"}
	j, err := startJob(s)
	if r.failed(err) {
		return
	}
	defer j.kill()
	for _, p := range j.procs {
		if err := p.await(startLimit, 1, "begins, or knows why not ("+what+")", decided); err != nil && !errors.Is(err, errEnded) {
			r.fault("%v", err)
			return
		}
	}
	wait(ctx, time.Second)
	for _, p := range j.procs {
		_, _ = fmt.Fprintln(p.in, "end")
	}
	limit := time.After(endLimit)
	for _, p := range j.procs {
		select {
		case <-p.ended:
		case <-limit:
			r.fault("%s at rank %d: rank %d hangs\n%s", what, poor, p.rank, p.complaints())
			return
		}
		if p.crashed() {
			r.fault("%s at rank %d: rank %d crashed (%v)\n%s", what, poor, p.rank, p.err, p.complaints())
		}
		for _, e := range p.find(is("fail")) {
			if e.Kind == "untyped" {
				r.fault("%s at rank %d: rank %d: %s with rank %d: untyped: %s", what, poor, p.rank, e.Op, e.Peer, e.Text)
			}
		}
		for _, e := range p.find(is("bad")) {
			if e.Kind != ends.String() {
				r.fault("%s at rank %d: rank %d: %s", what, poor, p.rank, e.Text)
			}
		}
		if group != nil && p.rank == poor && p.err != nil {
			r.count("ended by the kernel for want of memory", 1)
		}
		r.count("errors that say why", len(p.find(is("fail"))))
	}
}

// runtimeGaveUp reports whether the process was ended by Go's own runtime, which needs
// memory, threads and its poller.
func runtimeGaveUp(text string) bool {
	return slices.ContainsFunc([]string{"out of memory", "failed to reserve page summary memory", "runtime: cannot allocate memory", "failed to create new OS thread",
		"runtime: netpollinit", "runtime: epollctl", "runtime: eventfd"}, func(why string) bool { return strings.Contains(text, why) })
}

// poverty returns the command prefix that restricts a rank, its name, and the control group
// that it needs, if any. It fails if this machine lacks the means.
func poverty(r *round) (argv []string, what string, group *cgroup, err error) {
	switch r.IntN(6) {
	case 0:
		n := 16 + r.IntN(60)
		what = fmt.Sprintf("%d descriptors", n)
		argv, err = tool("prlimit", fmt.Sprintf("--nofile=%d", n))
	case 1:
		n := pick(r, 0, 16, 64) << 10
		what = fmt.Sprintf("%d bytes of locked memory", n)
		argv, err = tool("prlimit", fmt.Sprintf("--memlock=%d", n))
	case 2:
		n := 128 << (20 + r.IntN(6))
		what = fmt.Sprintf("%d MiB of address space", n>>20)
		argv, err = tool("prlimit", fmt.Sprintf("--as=%d", n))
	case 3:
		n := (12 + r.IntN(100)) << 20
		what = fmt.Sprintf("%d MiB of memory", n>>20)
		if group, err = memoryGroup(n); err == nil {
			argv, err = tool("sh", "-c", `echo $$ >"$0" && exec "$@"`, group.dir+"/cgroup.procs")
		}
	default:
		name := pick(r, sorted(calls)...)
		errno, nth := pick(r, calls[name]...), 1+int(r.ExpFloat64()*6)
		when := fmt.Sprintf("%d", nth)
		if r.IntN(3) == 0 {
			when += "+" // that one and all behind it
		}
		what = fmt.Sprintf("%s fails with %s at call %s", name, errno, when)
		argv, err = tool("strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace="+name, "-e", fmt.Sprintf("inject=%s:error=%s:when=%s", name, errno, when))
	}
	return argv, what, group, err
}

// memoryGroup makes a control group with a limit, of either version.
func memoryGroup(bytes int) (*cgroup, error) {
	var errs []string
	for _, v2 := range []bool{false, true} {
		c, err := newCgroup("memory", v2)
		if err == nil {
			if err = c.limitMemory(bytes); err == nil {
				return c, nil
			}
			c.close()
		}
		errs = append(errs, err.Error())
	}
	return nil, fmt.Errorf("limit of memory: %w", errors.New(strings.Join(errs, "; ")))
}

// tool returns the command with its path.
func tool(name string, args ...string) ([]string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return nil, fmt.Errorf("%s is not installed", name)
	}
	return append([]string{path}, args...), nil
}
