//go:build linux

package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// floodTime bounds a flood, whatever happens to the job.
const floodTime = 3 * time.Second

// Bounds of a rank's costs of a flood.
const (
	floodMemory = 256 << 20 // bytes resident beyond its regions
	floodFDs    = 4096
)

// strangers floods all ports of a job on the loopback interface from the moment at which
// they are opened: the job starts, connects and works nevertheless.
func strangers(ctx context.Context, r *round) {
	s := jobSpec{Ranks: pick(r, 2, 4), Fabric: "tcp", Root: "tcp"}
	s.Work = work{Ops: some(r, 1+r.IntN(3), pairNames()), Seed: r.Uint64(), Max: 1 << (12 + r.IntN(6))}
	j, err := startJob(s)
	if r.failed(err) {
		return
	}
	defer j.kill()
	f := &flood{seed: r.Uint64(), kind: pick(r, "mixed", "silent", "random", "partial", "http"), rate: pick(r, floodRates...)}
	flooded := fmt.Sprintf("under a flood (%s)", f.kind)
	f.add(strings.TrimPrefix(j.addr, "tcp:"))
	fctx, stop := context.WithTimeout(ctx, floodTime)
	defer stop()
	var tasks sync.WaitGroup
	defer tasks.Wait()
	defer stop()
	tasks.Go(func() { f.run(fctx) })
	tasks.Go(func() { // as soon as they exist
		for fctx.Err() == nil {
			for _, p := range j.procs {
				for _, a := range listening(p.cmd.Process.Pid) {
					f.add(a)
				}
			}
			wait(fctx, 20*time.Millisecond)
		}
	})
	began := now()
	if err := j.ready(startLimit); err != nil {
		r.fault("%s: %v", flooded, err)
		return
	}
	r.measure(figure{"start under flood", 0, startLimit}, now()-began)
	<-fctx.Done()
	modest(r, j.procs, flooded)
	r.count("connections of strangers", int(f.made.Load()))
	unharmed(r, j, flooded)
}

// listening returns the addresses on which the process accepts connections from this host.
func listening(pid int) (addrs []string) {
	inodes := map[string]bool{}
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	list, _ := os.ReadDir(dir)
	for _, fd := range list {
		if to, err := os.Readlink(dir + "/" + fd.Name()); err == nil && strings.HasPrefix(to, "socket:[") {
			inodes[strings.Trim(to[len("socket:"):], "[]")] = true
		}
	}
	f, err := os.Open(fmt.Sprintf("/proc/%d/net/tcp", pid))
	if err != nil {
		return nil
	}
	defer f.Close()
	const local, state, inode, listen = 1, 3, 9, "0A"
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if w := strings.Fields(lines.Text()); len(w) > inode && w[state] == listen && inodes[w[inode]] {
			_, hex, _ := strings.Cut(w[local], ":")
			if port, err := strconv.ParseUint(hex, 16, 16); err == nil {
				addrs = append(addrs, fmt.Sprintf("127.0.0.1:%d", port))
			}
		}
	}
	return addrs
}

// modest checks that processes hold no more than the bounds. when says what happened.
func modest(r *round, procs []*proc, when string) {
	for _, p := range procs {
		if rss, fds := held(p.cmd.Process.Pid); rss > floodMemory || fds > floodFDs {
			r.fault("rank %d holds %d MiB and %d descriptors %s", p.rank, rss>>20, fds, when)
		}
	}
}

// held returns the resident bytes and the descriptors of a process.
func held(pid int) (rss, fds int) {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if w := strings.Fields(string(b)); len(w) > 1 {
		pages, _ := strconv.Atoi(w[1])
		rss = pages * os.Getpagesize()
	}
	list, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	return rss, len(list)
}
