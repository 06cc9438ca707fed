//go:build linux

package main

import (
	"context"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/links"
)

// mutant makes this process a rank that speaks the protocols and breaks them: it changes
// the writes of its engine to peers, seldom or often. The engine's own links do so at the
// seam, where the frames of all protocols pass (blocks and credits of rings, headers of
// gathers, descriptors, adverts and their answers, slots of accumulates and groups, words
// of atomics); it also changes the frames of tcp and the words of shm's channels. All its
// actions are determined by the seed and the requests of its engine.
type mutant struct {
	*rand.Rand               // the owner's of the links
	seed       atomic.Uint64 // of those of relays
	rate       int           // one write in so many is changed
	mem        *os.File      // this process's memory
	dirty      fabric.Region // changed copies
	used       int           // used bytes of dirty
	past       [32]frame     // of writes
	written    int
	told       *atomic.Int64 // number of changes made
}

// frame is a write that was posted.
type frame struct {
	addr uint64
	rkey uint32
	data []byte
}

// maxFrame bounds the writes that are changed: longer ones are mostly payload.
const maxFrame = 16 << 10

// mutate makes the links of this process change their writes.
func mutate(seed uint64, rate int, told *atomic.Int64) error {
	mem, err := os.OpenFile("/proc/self/mem", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	m := &mutant{Rand: rand.New(rand.NewPCG(seed, 77)), rate: rate, mem: mem, told: told}
	m.seed.Store(seed)
	links.Decorate(func(l fabric.Link) (fabric.Link, error) {
		var err error
		m.dirty, err = l.Alloc(4<<20, fabric.AccessLocalWrite)
		return &mutantLink{l, m}, err
	})
	return nil
}

// mutantLink is a link of a mutant. Its endpoints are not fabric.Direct: all requests use
// Post.
type mutantLink struct {
	fabric.Link
	m *mutant
}

func (l *mutantLink) NewEndpoint(o fabric.EndpointOptions) (fabric.Endpoint, error) {
	ep, err := l.Link.NewEndpoint(o)
	if err != nil {
		return nil, err
	}
	return &mutantEndpoint{Endpoint: ep, m: l.m, tcp: l.Name() == "tcp"}, nil
}

func (l *mutantLink) Close() error {
	_ = l.m.dirty.Close()
	return l.Link.Close()
}

type mutantEndpoint struct {
	fabric.Endpoint
	m      *mutant
	tcp    bool
	relays []net.Listener
}

func (e *mutantEndpoint) Close() error {
	for _, ln := range e.relays {
		ln.Close()
	}
	return e.Endpoint.Close()
}

// Post implements fabric.Endpoint: it drops, repeats, delays or changes some requests.
func (e *mutantEndpoint) Post(wrs []fabric.WR) (n int, err error) {
	m := e.m
	for i := range wrs {
		list := [2]fabric.WR{wrs[i]}
		count := 1
		if m.IntN(m.rate) == 0 {
			m.told.Add(1)
			count = m.change(&list)
		} else {
			m.remember(&wrs[i])
		}
		for k := range count {
			if n, err = e.Endpoint.Post(list[k : k+1]); (n == 0 || err != nil) && k == 0 {
				return i, err
			}
		}
	}
	return len(wrs), nil
}

// payload returns the data of a write.
func (m *mutant) payload(wr *fabric.WR) []byte {
	var b []byte
	for _, s := range wr.Local {
		if len(b)+int(s.Len) > maxFrame {
			return nil
		}
		at := len(b)
		b = append(b, make([]byte, s.Len)...)
		if _, err := m.mem.ReadAt(b[at:], int64(s.Addr)); err != nil {
			return nil
		}
	}
	return b
}

func (m *mutant) remember(wr *fabric.WR) {
	if wr.Op != fabric.OpWrite || m.IntN(4) != 0 {
		return
	}
	if b := m.payload(wr); len(b) > 0 {
		m.past[m.written%len(m.past)] = frame{wr.RemoteAddr, wr.RKey, b}
		m.written++
	}
}

// change changes list[0], and may add another request behind it.
func (m *mutant) change(list *[2]fabric.WR) (count int) {
	wr := &list[0]
	if m.IntN(8) == 0 {
		m.scribble()
	}
	if wr.Op != fabric.OpWrite {
		switch m.IntN(8) {
		case 0:
			wr.RemoteAddr += uint64(8*m.IntN(64)) - 256
		case 1, 2:
			wr.Operand ^= 1 << m.IntN(64)
		case 3, 4:
			wr.Compare ^= 1 << m.IntN(64)
		}
		return 1
	}
	b := m.payload(wr)
	switch m.IntN(16) {
	case 0: // an old frame again, at its place or beside it
		if f := m.past[m.IntN(len(m.past))]; f.data != nil {
			list[1] = m.forge(f, pick8(m.Rand, 0, 8, 64))
			return 2
		}
	case 1: // the bytes of an old one
		if f := m.past[m.IntN(len(m.past))]; f.data != nil && len(b) > 0 {
			copy(b[m.IntN(len(b)):], f.data)
		}
	case 2: // elsewhere
		wr.RemoteAddr += pick8(m.Rand, 8, 16, 64, 128, 8192, ^uint64(7), ^uint64(63), ^uint64(8191))
	case 3: // cut at its beginning: receivers detect frames by their ends
		if n := m.IntN(len(b) + 1); n < len(b) {
			wr.RemoteAddr += uint64(n)
			b = b[n:]
		}
	case 4: // and at its end
		if n := m.IntN(len(b) + 1); n > 0 {
			b = b[:n]
		}
	case 5: // twice
		list[1] = *wr
		list[1].Flags &^= fabric.FlagSignaled
		return 2
	case 6:
		if m.IntN(8) == 0 {
			wr.RKey ^= 1 << m.IntN(32)
		}
		wr.Imm ^= 1 << m.IntN(32)
	default:
		damage(m.Rand, b)
	}
	if len(b) > 0 {
		m.fill(wr, b)
	}
	return 1
}

// forge returns a write of a frame, changed, beside its place.
func (m *mutant) forge(f frame, beside uint64) fabric.WR {
	wr := fabric.WR{Op: fabric.OpWrite, RemoteAddr: f.addr + beside, RKey: f.rkey}
	b := append([]byte(nil), f.data...)
	damage(m.Rand, b)
	m.fill(&wr, b)
	return wr
}

// fill makes b the data of wr.
func (m *mutant) fill(wr *fabric.WR, b []byte) {
	all := m.dirty.Bytes()
	if m.used+len(b) > len(all) {
		m.used = 0
	}
	at := all[m.used:][:len(b)]
	m.used += (len(b) + 63) &^ 63
	copy(at, b)
	wr.Flags &^= fabric.FlagInline
	wr.Local = []fabric.SGE{fabric.NewSGE(at, m.dirty.LKey())}
}

// damage changes bytes, mostly in words at the ends, where protocols have theirs.
func damage(rng *rand.Rand, b []byte) {
	if len(b) == 0 {
		return
	}
	for range 1 + rng.IntN(3) {
		at := rng.IntN(len(b))
		switch rng.IntN(3) {
		case 0:
			at = rng.IntN(min(len(b), 64))
		case 1:
			at = len(b) - 1 - rng.IntN(min(len(b), 64))
		}
		switch size := 1 << rng.IntN(4); {
		case rng.IntN(2) == 0 || at&^(size-1)+size > len(b):
			b[at] ^= 1 << rng.IntN(8)
		default:
			word := b[at&^(size-1):][:size]
			var w [8]byte
			copy(w[:], word)
			v := binary.LittleEndian.Uint64(w[:])
			switch rng.IntN(4) {
			case 0:
				v += uint64(rng.IntN(5)) - 2
			case 1:
				v = ^uint64(0) >> rng.IntN(64)
			case 2:
				v = 1 << rng.IntN(64)
			default:
				v = 0
			}
			binary.LittleEndian.PutUint64(w[:], v)
			copy(word, w[:])
		}
	}
}

func pick8(rng *rand.Rand, of ...uint64) uint64 { return of[rng.IntN(len(of))] }

// chanMagic begins a channel segment of shm (docs/wire.md).
const chanMagic = "rmachn01"

// scribble changes a word of a channel of shm, a peer's or this process's own: cells at its
// beginning, replies, frames, or bounce buffers.
func (m *mutant) scribble() {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return
	}
	var chans [][2]int64
	for line := range strings.Lines(string(maps)) {
		f := strings.Fields(line)
		if len(f) < 6 || f[1] != "rw-s" || !strings.Contains(f[5], "memfd") {
			continue
		}
		from, to, _ := strings.Cut(f[0], "-")
		a, err := strconv.ParseInt(from, 16, 64)
		b, err2 := strconv.ParseInt(to, 16, 64)
		var magic [len(chanMagic)]byte
		if _, err3 := m.mem.ReadAt(magic[:], a); err == nil && err2 == nil && err3 == nil && string(magic[:]) == chanMagic {
			chans = append(chans, [2]int64{a, b})
		}
	}
	if len(chans) == 0 {
		return
	}
	c := chans[m.IntN(len(chans))]
	within := int64(pick8(m.Rand, 256, 1280, 1280+64*256, uint64(c[1]-c[0])))
	var w [8]byte
	at := c[0] + m.Int64N(min(within, c[1]-c[0]))&^7
	if _, err := m.mem.ReadAt(w[:], at); err == nil {
		damage(m.Rand, w[:])
		_, _ = m.mem.WriteAt(w[:], at)
	}
}

// Layout of the address of an endpoint of tcp, and lengths of the handshakes of both sides
// before frames begin (docs/wire.md).
const (
	addressPort  = 26
	addressCount = 28
	saidByDialer = 48 + 32
	saidByOther  = 16 + 40
)

// Address implements fabric.Endpoint. Peers of a tcp link reach it through a relay that
// changes frames.
func (e *mutantEndpoint) Address() []byte {
	b := e.Endpoint.Address()
	if e.tcp {
		e.detour(b, false)
	}
	return b
}

// Connect implements fabric.Endpoint.
func (e *mutantEndpoint) Connect(ctx context.Context, peer []byte) error {
	if e.tcp {
		peer = append([]byte(nil), peer...)
		e.detour(peer, true)
	}
	return e.Endpoint.Connect(ctx, peer)
}

// detour replaces the network address in an endpoint's address by that of a relay to it.
// dials says whether this process will dial it.
func (e *mutantEndpoint) detour(address []byte, dials bool) {
	if len(address) < addressCount+6 || address[addressCount+1] != 4 {
		return
	}
	host := address[addressCount+2:][:4]
	port := address[addressPort:][:2]
	to := netip.AddrPortFrom(netip.AddrFrom4([4]byte(host)), binary.LittleEndian.Uint16(port))
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return
	}
	e.relays = append(e.relays, ln)
	here := ln.Addr().(*net.TCPAddr).AddrPort()
	copy(host, here.Addr().AsSlice())
	binary.LittleEndian.PutUint16(port, here.Port())
	go func() {
		for {
			a, err := ln.Accept()
			if err != nil {
				return
			}
			b, err := net.Dial("tcp4", to.String())
			if err != nil {
				a.Close()
				continue
			}
			liar, victim, said := a, b, int64(saidByDialer)
			if !dials {
				liar, victim, said = b, a, saidByOther
			}
			go e.m.relay(victim, liar, said)
			go func() {
				_, _ = io.Copy(liar, victim)
				liar.Close()
				victim.Close()
			}()
		}
	}()
}

// Layout of the header of a frame of tcp (docs/wire.md).
const (
	frameHeader  = 32
	frameBytes   = 16
	frameOpRead  = 2
	frameByLanes = 4
)

// relay passes on the bytes of from: the handshake, of said bytes, unchanged, and frames,
// some with a changed header. After a changed length the other side misinterprets the rest.
func (m *mutant) relay(to, from net.Conn, said int64) {
	defer to.Close()
	defer from.Close()
	rng := rand.New(rand.NewPCG(m.seed.Add(1), 78))
	if _, err := io.CopyN(to, from, said); err != nil {
		return
	}
	header := make([]byte, frameHeader)
	for {
		if _, err := io.ReadFull(from, header); err != nil {
			return
		}
		n := int64(binary.LittleEndian.Uint32(header[frameBytes:]))
		if header[0] == frameOpRead || header[1]&frameByLanes != 0 {
			n = 0
		}
		if rng.IntN(4*m.rate) == 0 {
			m.told.Add(1)
			damage(rng, header)
		}
		if _, err := to.Write(header); err != nil {
			return
		}
		if _, err := io.CopyN(to, from, n); err != nil {
			return
		}
	}
}
