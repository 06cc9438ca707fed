//go:build linux

package main

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// calls are the system calls of the engine, and the errors that each may end in.
var calls = map[string][]string{
	"socket": {"EMFILE", "ENFILE", "ENOMEM"}, "accept4": {"EMFILE", "ECONNABORTED", "ENOMEM"}, "connect": {"ENOMEM", "EINTR"},
	"sendmsg": {"ENOBUFS", "ENOMEM", "EINTR"}, "recvmsg": {"ENOMEM", "EINTR"}, "memfd_create": {"EMFILE", "ENOMEM"},
	"ftruncate": {"ENOSPC", "ENOMEM"}, "fallocate": {"ENOSPC", "ENOMEM", "EINTR"}, "process_vm_writev": {"ENOMEM", "EPERM"},
	"process_vm_readv": {"ENOMEM", "EPERM"}, "eventfd2": {"EMFILE", "ENOMEM"}, "epoll_ctl": {"ENOMEM", "ENOSPC"},
	"epoll_create1": {"EMFILE", "ENOMEM"}, "setsockopt": {"ENOMEM", "ENOBUFS"}, "listen": {"EADDRINUSE"}, "pidfd_open": {"EMFILE"},
}

// limits takes resources away from one rank: few descriptors, little address space or
// locked memory, or a system call that fails. The rank works, or ends its operations
// in typed errors; it does not crash or hang, and nor do others.
func limits(ctx context.Context, r *round) {
	s := jobSpec{Ranks: pick(r, 2, 3), Fabric: pick(r, "shm", "tcp"), Root: pick(r, "unix", "tcp")}
	s.Work = work{Ops: some(r, 1+r.IntN(4), pairNames()), Seed: r.Uint64(), Max: 1 << (12 + r.IntN(9))}
	poor := r.IntN(s.Ranks)
	wrap, what := poverty(r)
	if wrap == nil {
		r.count("left out: "+what+" is not installed", 1)
		return
	}
	s.Wrap = func(rank int, argv []string) []string {
		if rank == poor {
			return append(wrap, argv...)
		}
		return argv
	}
	s.Env = []string{"RMA_TIMEOUT=20s"}
	j, err := startJob(s)
	if err != nil {
		r.fault("%v", err)
		return
	}
	defer j.kill()
	for _, p := range j.procs {
		if err := p.await(startLimit, 1, "begins, or knows why not ("+what+")", func(e event) bool { return e.Ev == "fail" || e.Ev == "ready" }); err != nil && !strings.Contains(err.Error(), "ended") {
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
		text := p.complaints()
		for _, crash := range []string{"panic: ", "fatal error: ", "SIGSEGV", "SIGBUS"} {
			if strings.Contains(text, crash) && !runtimeGaveUp(text) {
				r.fault("%s at rank %d: rank %d crashed\n%s", what, poor, p.rank, text)
				break
			}
		}
		for _, e := range p.find(is("fail")) {
			if e.Kind == "untyped" {
				r.fault("%s at rank %d: rank %d: %s with rank %d: untyped: %s", what, poor, p.rank, e.Op, e.Peer, e.Text)
			}
		}
		for _, e := range p.find(is("bad")) {
			if !strings.HasPrefix(e.Text, "close:") {
				r.fault("%s at rank %d: rank %d: %s", what, poor, p.rank, e.Text)
			}
		}
		r.count("errors that say why", len(p.find(is("fail"))))
	}
}

// runtimeGaveUp reports whether Go's own runtime, which cannot live without memory,
// threads and its poller, ended the process.
func runtimeGaveUp(text string) bool {
	for _, why := range []string{"out of memory", "failed to create new OS thread", "runtime: netpollinit", "runtime: epollctl", "runtime: eventfd"} {
		if strings.Contains(text, why) {
			return true
		}
	}
	return false
}

// poverty returns what to start a rank with, and its name.
func poverty(r *round) (argv []string, what string) {
	switch r.IntN(4) {
	case 0:
		n := 16 + r.IntN(60)
		return tool("prlimit", fmt.Sprintf("--nofile=%d", n)), fmt.Sprintf("%d descriptors", n)
	case 1:
		n := pick(r, 0, 16, 64) << 10
		return tool("prlimit", fmt.Sprintf("--memlock=%d", n)), fmt.Sprintf("%d bytes of locked memory", n)
	}
	name := pick(r, sorted(calls)...)
	errno, nth := pick(r, calls[name]...), 1+int(r.ExpFloat64()*6)
	when := fmt.Sprintf("%d", nth)
	if r.IntN(3) == 0 {
		when += "+" // that one and all behind it
	}
	argv = tool("strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace="+name, "-e", fmt.Sprintf("inject=%s:error=%s:when=%s", name, errno, when))
	if argv == nil {
		return nil, "strace"
	}
	return argv, fmt.Sprintf("%s fails with %s at call %s", name, errno, when)
}

// tool is the command, or nil where it is not installed.
func tool(name string, args ...string) []string {
	path, err := exec.LookPath(name)
	if err != nil {
		return nil
	}
	return append([]string{path}, args...)
}
