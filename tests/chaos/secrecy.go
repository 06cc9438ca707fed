//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"
)

// secrecy puts a relay without the token between a rank and the wire-up server. The relay
// reads neither the token nor a key of memory; its changes, drops, duplicates and cuts are
// detected; its replays have no effect.
func secrecy(ctx context.Context, r *round) {
	s := jobSpec{Ranks: pick(r, 2, 3), Fabric: pick(r, "tcp", "shm"), Root: "tcp", Env: []string{"RMA_TIMEOUT=20s"}}
	s.Work = work{Ops: some(r, 1+r.IntN(3), allOps()), Seed: r.Uint64(), Max: 1 << 14, ShowKeys: true}
	m := &relay{what: pick(r, "nothing", "nothing", "flip", "drop", "double", "cut"), at: int64(r.IntN(3000)), up: r.IntN(2) == 0, bit: byte(1) << r.IntN(8)}
	if r.failed(m.listen()) {
		return
	}
	defer m.close()
	s.Wrap = func(rank int, argv []string) []string {
		if rank == s.Ranks-1 {
			return append([]string{"env", "RMA_ROOT=tcp:" + m.ln.Addr().String()}, argv...)
		}
		return argv
	}
	j, err := startJob(s)
	if r.failed(err) {
		return
	}
	defer j.kill()
	m.to(strings.TrimPrefix(j.addr, "tcp:"))
	var failed []string
	for _, p := range j.procs {
		err := p.await(startLimit, 1, "begins, or knows why not", decided)
		if err != nil {
			r.fault("a relay that does %s at byte %d: %v", m.what, m.at, err)
			return
		}
		for _, e := range p.find(func(e event) bool { return e.Ev == "fail" && e.Op == "open" }) {
			failed = append(failed, fmt.Sprintf("rank %d did not start over a relay that does nothing: %s", p.rank, e.Text))
		}
	}
	acted := m.acted()
	if r.count("meddling noticed at the start", len(failed)); !acted {
		for _, f := range failed {
			r.fault("%s", f)
		}
	}
	m.search(r, "token", j.token)
	m.search(r, "token", []byte(hex.EncodeToString(j.token)))
	for _, p := range j.procs {
		for _, e := range p.find(is("key")) {
			key, _ := hex.DecodeString(e.Text)
			m.search(r, "key of a region", key)
		}
	}
	if acted { // the rank that detected it has left the job, and all others with it
		for _, p := range j.procs {
			r.hear(p, fmt.Sprintf("a relay that does %s: ", m.what))
		}
		return
	}
	m.replay()
	goOn(r, j.procs, -2)
	m.search(r, "token", j.token)
	j.finish(r)
	r.count("bytes recorded", m.recorded())
}

// relay passes connections on, records them, and tampers once.
type relay struct {
	what string // its action
	at   int64  // at which byte
	up   bool   // of the direction to the server
	bit  byte

	ln    net.Listener
	tasks sync.WaitGroup
	known chan struct{} // closed when addr is set
	addr  string

	mu    sync.Mutex
	seen  [2]bytes.Buffer // down, up
	did   bool
	done  bool // passes everything on
	conns []net.Conn
}

func (m *relay) listen() (err error) {
	m.known = make(chan struct{})
	if m.ln, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return err
	}
	m.tasks.Go(func() {
		for {
			c, err := m.ln.Accept()
			if err != nil {
				return
			}
			m.tasks.Go(func() { m.pass(c) })
		}
	})
	return nil
}

func (m *relay) to(addr string) {
	m.addr = addr
	close(m.known)
}

func (m *relay) pass(c net.Conn) {
	defer c.Close()
	<-m.known
	s, err := net.Dial("tcp", m.addr)
	if err != nil {
		return
	}
	defer s.Close()
	m.mu.Lock()
	m.conns = append(m.conns, c, s)
	m.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { m.copy(s, c, 1) })
	both.Go(func() { m.copy(c, s, 0) })
	both.Wait()
}

// copy passes on one direction and closes both ends with it.
func (m *relay) copy(dst, src net.Conn, dir int) {
	defer dst.Close()
	defer src.Close()
	buf := make([]byte, 4096)
	for {
		n, err := src.Read(buf)
		if n > 0 {
			out, end := m.meddle(buf[:n], dir)
			if _, werr := dst.Write(out); werr != nil || end {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// meddle records passing bytes, and returns the bytes to pass on instead.
func (m *relay) meddle(b []byte, dir int) (out []byte, end bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := int64(m.seen[dir].Len())
	m.seen[dir].Write(b)
	i := m.at - before
	if m.did || m.done || m.what == "nothing" || m.up != (dir == 1) || i < 0 || i >= int64(len(b)) {
		return b, false
	}
	m.did = true
	switch m.what {
	case "flip":
		b[i] ^= m.bit
	case "drop":
		return append(b[:i:i], b[i+1:]...), false
	case "double":
		return append(b, b...), false
	case "cut":
		return b[:i], true
	}
	return b, false
}

// acted reports whether the relay has tampered. It does so only once.
func (m *relay) acted() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.done = true
	return m.did
}

func (m *relay) recorded() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.seen[0].Len() + m.seen[1].Len()
}

func (m *relay) search(r *round, what string, secret []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, b := range m.seen {
		if len(secret) > 0 && bytes.Contains(b.Bytes(), secret) {
			r.fault("the relay read the %s", what)
		}
	}
}

// replay sends the rank's recorded bytes again, on a connection of its own.
func (m *relay) replay() {
	c, err := net.Dial("tcp", m.addr)
	if err != nil {
		return
	}
	defer c.Close()
	m.mu.Lock()
	said := bytes.Clone(m.seen[1].Bytes())
	m.mu.Unlock()
	_ = c.SetDeadline(time.Now().Add(time.Second))
	_, _ = c.Write(said)
	_, _ = c.Read(make([]byte, 4096))
}

func (m *relay) close() {
	m.ln.Close()
	select {
	case <-m.known:
	default:
		close(m.known)
	}
	m.mu.Lock()
	for _, c := range m.conns {
		c.Close()
	}
	m.mu.Unlock()
	m.tasks.Wait()
}
