//go:build linux

package main

import (
	"context"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// floodRates are in connections a second.
var floodRates = []int{1_000, 10_000, 50_000}

// Bounds of a flood's use of this process.
const (
	floodWorkers = 32
	floodHeld    = 2000 // connections that send nothing and stay open
)

// flood opens connections to addresses of this host.
type flood struct {
	seed uint64
	kind string
	rate int // connections a second; made counts the actual ones, which may be fewer
	made atomic.Int64

	mu    sync.Mutex
	addrs []string
	open  []net.Conn
}

func (f *flood) add(addr string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.Contains(f.addrs, addr) {
		f.addrs = append(f.addrs, addr)
	}
}

// run floods until ctx ends.
func (f *flood) run(ctx context.Context) {
	var tasks sync.WaitGroup
	for w := range floodWorkers {
		tasks.Go(func() { f.work(ctx, uint64(w)) })
	}
	tasks.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.open {
		c.Close()
	}
	f.open = nil
}

// work opens a worker's share of the connections. Each comes from an address of its own,
// and leaves no state that would exhaust the ports of this host.
func (f *flood) work(ctx context.Context, worker uint64) {
	rng := rand.New(rand.NewPCG(f.seed, worker))
	pause := floodWorkers * time.Second / time.Duration(f.rate)
	for next := now(); ctx.Err() == nil; {
		if ahead := next - now(); ahead > 0 {
			wait(ctx, ahead)
		} else if ahead < -100*time.Millisecond { // it cannot keep up
			next = now()
		}
		next += pause
		f.mu.Lock()
		addr := f.addrs[rng.IntN(len(f.addrs))]
		f.mu.Unlock()
		from := &net.TCPAddr{IP: net.IPv4(127, byte(1+rng.IntN(250)), byte(rng.IntN(256)), byte(1+rng.IntN(250)))}
		c, err := (&net.Dialer{Timeout: time.Second, LocalAddr: from}).DialContext(ctx, "tcp", addr)
		if err != nil {
			continue
		}
		_ = c.(*net.TCPConn).SetLinger(0)
		f.made.Add(1)
		_ = c.SetDeadline(time.Now().Add(time.Second))
		kind := f.kind
		if kind == "mixed" {
			kind = []string{"silent", "random", "partial", "http"}[rng.IntN(4)]
		}
		junk := make([]byte, 1+rng.IntN(300))
		for i := range junk {
			junk[i] = byte(rng.Uint32())
		}
		switch kind {
		case "random":
			_, _ = c.Write(junk)
		case "http":
			_, _ = c.Write([]byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n"))
		case "partial":
			_, _ = c.Write(junk[:min(3, len(junk))])
			fallthrough
		case "silent":
			c = f.hold(c)
		}
		if c != nil {
			c.Close()
		}
	}
}

// hold keeps the connection open, or returns it if enough are held.
func (f *flood) hold(c net.Conn) net.Conn {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.open) == floodHeld {
		return c
	}
	f.open = append(f.open, c)
	return nil
}
