//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed33544411/rma/internal/testutil"
)

// sniffer records everything that crosses the network, or the loopback interface, of a job,
// and replays it. The recording never contains the secret, nor keys while the job is wired
// up, nor, with RMA_TCP_CRYPT=full, keys and data afterwards. The replay has no effect.
func sniffer(ctx context.Context, r *round) {
	n, err := newNet(r.no, 1)
	if err != nil {
		r.leaveOut(err)
		return
	}
	defer n.close()
	crypt, device := pick(r, "off", "auth", "full", "full"), pick(r, "lo", wireName(0))
	s := jobSpec{Ranks: 2, Fabric: "tcp", Root: "tcp", Listen: n.listen, Wrap: n.wrap, Env: []string{"RMA_TCP_CRYPT=" + crypt}}
	s.Work = work{Ops: withGet(some(r, r.IntN(4), pairNames())), Seed: r.Uint64(), Max: 1 << (12 + r.IntN(6)), ShowKeys: true}
	if device == "lo" { // one host
		s.Wrap = func(_ int, argv []string) []string { return n.on(0, argv) }
	}
	rec := &record{streams: map[flow]*stream{}}
	t, err := n.tap(0, device, rec.hear)
	if err != nil {
		r.leaveOut(err)
		return
	}
	defer t.close()
	j := begin(r, s)
	if j == nil {
		return
	}
	defer j.kill()
	server, all := strings.TrimPrefix(j.addr, "tcp:"), ""
	secret := fmt.Sprintf("with RMA_TCP_CRYPT=%s the sniffer on %s read ", crypt, device)
	rec.seek(secret+"the secret", j.token, all)
	rec.seek(secret+"the secret", []byte(hex.EncodeToString(j.token)), all)
	data := rec.seek(secret+"data", testutil.Payload(32, pattern(1, 0), 0), all) // of rank 1, which rank 0 gets
	where := server
	if crypt == "full" {
		where = all
	}
	for _, p := range j.procs {
		for _, e := range p.find(is("key")) {
			key, _ := hex.DecodeString(e.Text)
			rec.seek(secret+"a key", key, where)
		}
	}
	for end := now() + tellLimit; crypt != "full" && !rec.saw(data); wait(ctx, 10*time.Millisecond) {
		if now() > end {
			r.fault("with RMA_TCP_CRYPT=%s the sniffer on %s sees no data: it cannot find what it looks for", crypt, device)
			return
		}
	}
	goOn(r, j.procs, -2)
	r.count("streams replayed", n.replay(rec))
	unharmed(r, j, "when what it had said was said again")
	t.close()
	for _, n := range rec.needles {
		if n.found && (n != data || crypt == "full") {
			r.fault("%s", n.what)
		}
	}
	r.count("bytes read on the network", int(rec.bytes.Load()))
}

// withGet returns the list with "get" in it once.
func withGet(ops []string) []string {
	if slices.Contains(ops, "get") {
		return ops
	}
	return append(ops, "get")
}

// record is the traffic recorded on the network.
type record struct {
	bytes atomic.Int64

	mu      sync.Mutex
	streams map[flow]*stream
	needles []*needle
}

// needle is a byte string that must not be found.
type needle struct {
	what  string
	b     []byte
	at    string // address to or from which it was sent; "": any
	found bool
}

// needleMost bounds the length of a needle in bytes, recordMost the bytes of a stream that
// are kept for replay.
const (
	needleMost = 64
	recordMost = 1 << 20
)

type stream struct {
	next   uint32
	opened bool // from its beginning, by this side
	holes  bool
	begin  []byte
	last   []byte
}

func (c *record) hear(_ *tap, s segment) {
	c.mu.Lock()
	defer c.mu.Unlock()
	st := c.streams[s.flow]
	if st == nil {
		st = &stream{opened: s.syn && c.streams[flow{s.to, s.from}] == nil, next: s.seq}
		c.streams[s.flow] = st
	}
	if s.syn {
		st.next = s.seq + 1
		return
	}
	fresh := int(int32(s.seq + uint32(len(s.payload)) - st.next))
	if fresh <= 0 {
		return
	}
	if fresh > len(s.payload) { // a part was missed
		st.holes, fresh = true, len(s.payload)
	}
	b := s.payload[len(s.payload)-fresh:]
	st.next = s.seq + uint32(len(s.payload))
	if len(st.begin) < recordMost {
		st.begin = append(st.begin, b...)
	}
	st.last = append(st.last, b...)
	for _, n := range c.needles {
		n.seekIn(s.flow, st.last)
	}
	st.last = append(st.last[:0], st.last[max(0, len(st.last)-needleMost):]...)
	c.bytes.Add(int64(fresh))
}

func (n *needle) seekIn(f flow, b []byte) {
	if !n.found && (n.at == "" || f.from.String() == n.at || f.to.String() == n.at) {
		n.found = len(n.b) > 0 && bytes.Contains(b, n.b)
	}
}

// seek searches for b in the kept traffic and in all that follows.
func (c *record) seek(what string, b []byte, at string) *needle {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := &needle{what: what, b: b, at: at}
	c.needles = append(c.needles, n)
	for f, st := range c.streams {
		n.seekIn(f, st.begin)
	}
	return n
}

func (c *record) saw(n *needle) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return n.found
}

// replay reopens every connection that was recorded from its beginning and sends the
// recorded bytes.
func (n *twoHosts) replay(c *record) (streams int) {
	c.mu.Lock()
	said := map[flow][]byte{}
	for f, st := range c.streams {
		if st.opened && !st.holes && len(said) < 16 {
			said[f] = bytes.Clone(st.begin)
		}
	}
	c.mu.Unlock()
	for f, b := range said {
		_ = n.in(0, func() error {
			conn, err := net.DialTimeout("tcp", f.to.String(), time.Second)
			if err != nil {
				return err
			}
			defer conn.Close()
			streams++
			_ = conn.SetDeadline(time.Now().Add(300 * time.Millisecond))
			_, _ = conn.Write(b)
			_, err = io.Copy(io.Discard, conn)
			return err
		})
	}
	return streams
}
