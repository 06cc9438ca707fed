//go:build linux

package tcp

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/testutil"
)

func TestParseCrypt(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]Crypt{"": CryptDefault, "off": CryptOff, "auth": CryptAuth, "full": CryptFull} {
		c, err := ParseCrypt(s)
		require.NoError(t, err)
		require.Equal(t, want, c)
	}
	for _, s := range []string{"on", "default", "FULL", "aes"} {
		_, err := ParseCrypt(s)
		require.Error(t, err, s)
	}
	require.Equal(t, CryptOff, CryptDefault.of(ClassHost))
	require.Equal(t, CryptAuth, CryptDefault.of(ClassNear))
	require.Equal(t, CryptAuth, CryptDefault.of(ClassLong))
	require.Equal(t, CryptOff, CryptOff.of(ClassLong))
	require.Equal(t, "crypt(9)", Crypt(9).String())
}

// The stronger of two choices holds, on all connections.
func TestCryptAgreed(t *testing.T) {
	t.Parallel()
	for a := CryptOff; a < numCrypts; a++ {
		for b := CryptOff; b < numCrypts; b++ {
			x := newHost(t, Config{Crypt: a, Lanes: 2}, fabric.EndpointOptions{}, 64)
			y := newHost(t, Config{Crypt: b, Lanes: 2}, fabric.EndpointOptions{}, 64)
			join(t, x, y)
			for _, h := range []*host{x, y} {
				require.Equal(t, max(a, b), h.ep.path.crypt)
				for _, c := range []*records{h.ep.sock.sec, h.ep.lanes.all[0].sec, h.ep.lanes.all[1].sec} {
					require.Equal(t, max(a, b) == CryptOff, c == nil)
				}
			}
			if max(a, b) != CryptOff {
				require.NotEqual(t, x.ep.sock.sec.out.key, x.ep.sock.sec.in.key, "a key for each direction")
				require.NotEqual(t, x.ep.sock.sec.out.key, x.ep.lanes.all[0].sec.out.key, "and each connection")
				require.Equal(t, x.ep.sock.sec.out.key, y.ep.sock.sec.in.key)
			}
		}
	}
}

// relay is a listener that passes connections on to another, in both directions; what
// the side that dialled sends goes through change first.
type relay struct {
	ln     net.Listener
	wg     sync.WaitGroup
	mu     sync.Mutex
	conns  []net.Conn
	said   [2]bytes.Buffer // by the side that dials, and by the other; of all connections
	change func(b []byte) []byte
}

func newRelay(t *testing.T, to string) *relay {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	r := &relay{ln: ln}
	r.wg.Add(1)
	go func() {
		defer r.wg.Done()
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			d, err := net.Dial("tcp", to)
			if err != nil {
				_ = c.Close()
				continue
			}
			r.mu.Lock()
			r.conns = append(r.conns, c, d)
			r.mu.Unlock()
			r.wg.Add(2)
			go r.pass(d, c, 0)
			go r.pass(c, d, 1)
		}
	}()
	t.Cleanup(func() {
		_ = ln.Close()
		r.mu.Lock()
		for _, c := range r.conns {
			_ = c.Close()
		}
		r.mu.Unlock()
		r.wg.Wait()
	})
	return r
}

func (r *relay) pass(to, from net.Conn, side int) {
	defer r.wg.Done()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		b := buf[:n]
		r.mu.Lock()
		r.said[side].Write(b)
		if r.change != nil && side == 0 {
			b = r.change(b)
		}
		r.mu.Unlock()
		if _, werr := to.Write(b); err != nil || werr != nil {
			_ = to.(*net.TCPConn).CloseWrite()
			return
		}
	}
}

// relayed connects two hosts through a relay; a dials.
func relayed(t *testing.T, cfg Config, size int) (a, b *host, r *relay) {
	a, b = newHost(t, cfg, fabric.EndpointOptions{ID: 1}, size), newHost(t, cfg, fabric.EndpointOptions{ID: 2}, size)
	if a.ep.nonce > b.ep.nonce {
		a, b = b, a
	}
	r = newRelay(t, b.l.where())
	addr := address{token: b.ep.token, nonce: b.ep.nonce, port: uint16(r.ln.Addr().(*net.TCPAddr).Port), hosts: []netip.Addr{netip.MustParseAddr("127.0.0.1")}}
	ctx := testutil.Context(t, testutil.Limit)
	errs := make(chan error, 1)
	go func() { errs <- b.ep.Connect(ctx, a.ep.Address()) }()
	require.NoError(t, a.ep.Connect(ctx, addr.append(nil)))
	require.NoError(t, <-errs)
	return a, b, r
}

// Who listens sees neither tokens nor, where all is encrypted, anything that is moved.
func TestSniffer(t *testing.T) {
	t.Parallel()
	for c := CryptOff; c < numCrypts; c++ {
		const size = 512 << 10
		a, b, r := relayed(t, Config{Crypt: c}, size)
		secret := testutil.Payload(size, 7, 0)
		copy(a.reg.Bytes(), secret)
		for _, n := range []int{64, 64 << 10, size} { // copied, in place, by a lane
			w := a.write(0, n, b.reg.Key(), fabric.FlagSignaled)
			a.post(w)
			w.Op = fabric.OpRead // and back
			a.post(w)
		}
		until(t, "completions", func() bool { return len(a.got) == 6 }, a, b)
		require.Equal(t, secret, b.reg.Bytes())
		testutil.Holding(&r.mu, func() {
			for _, said := range r.said {
				for _, k := range []token{a.ep.token, b.ep.token} {
					require.NotContains(t, said.String(), string(k[:]))
				}
				seen := 0
				for at := 0; at+16 <= size; at += 4 << 10 {
					if bytes.Contains(said.Bytes(), secret[at:at+16]) {
						seen++
					}
				}
				if c == CryptFull {
					require.Zero(t, seen)
				} else {
					require.NotZero(t, seen, "the test sees what is not encrypted")
				}
			}
		})
	}
}

// What is changed, played again, left out, put in another order or put in on the way
// takes the endpoint down, and nothing of it is placed.
func TestRelayThatChanges(t *testing.T) {
	t.Parallel()
	// One write of 8 bytes is one record.
	const one = recordHead + headerSize + 8 + tagSize
	flip := func(at int) func([]byte) []byte {
		return func(b []byte) []byte { b[at] ^= 0x10; return b }
	}
	for name, change := range map[string]func(b []byte) []byte{
		"length":          flip(0),
		"length, made 0":  func(b []byte) []byte { clear(b[:recordHead]); return b },
		"length, highest": flip(3),
		"type of frame":   flip(recordHead),
		"flags":           flip(recordHead + 1),
		"acknowledgement": flip(recordHead + 4),
		"number":          flip(recordHead + 8),
		"key":             flip(recordHead + 20),
		"address":         flip(recordHead + 24),
		"payload":         flip(recordHead + headerSize),
		"tag":             flip(one - 1),
		"next record":     flip(one + recordHead),
		"last tag":        flip(3*one - 1),
		"played again":    func(b []byte) []byte { return append(b[:one:one], b...) },
		"left out":        func(b []byte) []byte { return b[one:] },
		"last left out":   func(b []byte) []byte { return append(b[:2*one:2*one], b[:one]...) },
		"another order":   func(b []byte) []byte { return append(append(b[one:2*one:2*one], b[:one]...), b[2*one:]...) },
		"put in":          func(b []byte) []byte { return append(make([]byte, 7, 7+len(b)), b...) },
		"put in behind":   func(b []byte) []byte { return append(b, make([]byte, one)...) },
	} {
		for c := CryptAuth; c < numCrypts; c++ {
			t.Run(fmt.Sprint(name, " ", c), func(t *testing.T) {
				a, b, r := relayed(t, Config{Crypt: c}, 4096)
				ready := make(chan struct{})
				var held []byte
				r.mu.Lock()
				r.change = func(b []byte) []byte { // all three at once
					if held = append(held, b...); len(held) < 3*one {
						return nil
					}
					r.change = nil
					close(ready)
					return change(held)
				}
				r.mu.Unlock()
				for i := range 3 {
					testutil.Fill(a.reg.Bytes()[8*i:8*i+8], uint64(i+1), 0)
					a.post(a.write(8*i, 8, b.reg.Key(), fabric.FlagSignaled))
				}
				<-ready
				until(t, "down", func() bool { return b.ep.state.Load() == epDown }, b)
				require.ErrorIs(t, b.ep.Err(), ErrForged)
				require.ErrorIs(t, b.ep.Err(), fabric.ErrRemoteInvalid)
				// A prefix of what was sent is there, and nothing else.
				n := int(b.ep.out.acks.executed)
				require.Equal(t, a.reg.Bytes()[:8*n], b.reg.Bytes()[:8*n])
				require.Equal(t, make([]byte, 4096-8*n), b.reg.Bytes()[8*n:])
				until(t, "down", func() bool { return a.ep.state.Load() == epDown }, a)
			})
		}
	}
}

// A stream that is cut within a record ends the endpoint, and nothing of it is placed.
func TestRelayThatCuts(t *testing.T) {
	t.Parallel()
	a, b, r := relayed(t, Config{Crypt: CryptAuth}, 4096)
	r.mu.Lock()
	r.change = func(p []byte) []byte {
		for _, c := range r.conns {
			_ = c.(*net.TCPConn).CloseRead()
		}
		return p[:max(len(p)-1, 0)]
	}
	r.mu.Unlock()
	testutil.Store64(a.reg.Bytes(), 5)
	a.post(a.write(0, 8, b.reg.Key(), fabric.FlagSignaled))
	until(t, "down", func() bool { return b.ep.state.Load() == epDown }, b)
	require.ErrorIs(t, b.ep.Err(), fabric.ErrPeerGone)
	require.Zero(t, testutil.Load64(b.reg.Bytes()))
}

// The same on a lane.
func TestRelayThatChangesALane(t *testing.T) {
	t.Parallel()
	const size = 1 << 20
	a, b, r := relayed(t, Config{Crypt: CryptFull, LaneMin: size}, size)
	seen := 0
	r.mu.Lock()
	r.change = func(p []byte) []byte {
		if seen += len(p); seen > size/2 { // only a lane carries so much
			p[len(p)/2] ^= 1
			r.change = nil
		}
		return p
	}
	r.mu.Unlock()
	testutil.Fill(a.reg.Bytes(), 3, 0)
	a.post(a.write(0, size, b.reg.Key(), fabric.FlagSignaled))
	until(t, "down", func() bool { return b.ep.state.Load() == epDown }, a, b)
	require.ErrorIs(t, b.ep.Err(), ErrForged)
	require.Zero(t, testutil.Load64(b.reg.Bytes()[size-8:]), "the last word")
}

func socketPair(tb testing.TB) [2]int {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	require.NoError(tb, err)
	tb.Cleanup(func() { _, _ = unix.Close(fds[0]), unix.Close(fds[1]) })
	return fds
}

// pipe is a protected connection in memory, in blocks of any size.
func pipe(tb testing.TB, c Crypt) (a, b *records, x, y socket) {
	fds := socketPair(tb)
	k := keys{crypt: c, send: [keySize]byte{1}, recv: [keySize]byte{2}}
	a, err := newRecords(&k)
	require.NoError(tb, err)
	k.send, k.recv = k.recv, k.send
	b, err = newRecords(&k)
	require.NoError(tb, err)
	tb.Cleanup(func() { a.free(); b.free() })
	return a, b, socket{fd: fds[0], sec: a}, socket{fd: fds[1], sec: b}
}

// Records move every byte once and in order, in whatever pieces it is handed over and
// taken, through changes of the key.
func TestRecords(t *testing.T) {
	t.Parallel()
	for c := CryptAuth; c < numCrypts; c++ {
		a, b, x, y := pipe(t, c)
		a.out.seq, b.in.seq = rekeyAfter-3, rekeyAfter-3
		from, to := testutil.Scratch(t, 3<<20), testutil.Scratch(t, 3<<20)
		testutil.Fill(from, 9, 0)
		piecesOf := func(mem []byte, at, n, step int) (v []iovec) {
			for end := min(at+n, len(mem)); at < end; {
				m := min(step, end-at)
				v = append(v, iovec{uintptr(fabric.Addr(mem[at:])), uintptr(m)}, iovec{uintptr(fabric.Addr(mem[at:])), 0})
				at += m
			}
			return v
		}
		sum := func(v []iovec) (n int) {
			for _, p := range v {
				n += int(p.len)
			}
			return n
		}
		sent, got := 0, 0
		for i := 1; got < len(to); i++ {
			if v := piecesOf(from, sent, i*7919%300_000+1, i*31%5000+1); len(v) != 0 {
				n, errno := a.send(x.fd, v, sum(v))
				require.True(t, errno == 0 || n == 0, errno)
				require.LessOrEqual(t, n, sum(v))
				sent += n
			}
			v := piecesOf(to, got, i*104729%200_000+1, i*17%3000+1)
			n, errno := b.recv(y.fd, v, sum(v))
			require.True(t, errno == 0 || n <= 0, errno)
			if got += max(n, 0); n == sum(v) && b.r < b.w {
				require.True(t, b.more())
			}
		}
		require.Equal(t, len(from), sent)
		require.NoError(t, testutil.Verify(to, 9, 0))
		require.Less(t, a.out.seq, uint64(rekeyAfter-3))
		require.NotEqual(t, [keySize]byte{1}, a.out.key)
		require.Equal(t, a.out.key, b.in.key)
		require.False(t, b.more())
	}
}

// What a record looks like, byte by byte.
func TestRecordGolden(t *testing.T) {
	t.Parallel()
	mem := testutil.Scratch(t, 8)
	copy(mem, "12345678")
	for c, want := range map[Crypt][]string{
		CryptAuth: {"0800000031323334353637384527f449c7d8c9fa4e61519d01e0c62b", "080000003132333435363738bd78c4c62b08a9a1e57d93a93dc8c769"},
		CryptFull: {"080000002001c4c36444c6f41654f198ef2a91bf2d098b9f19ef9140", "080000002ce0c5ca1a87fb00e9a3a86ea50f6fe47df293e646e054dd"},
	} {
		a, _, x, y := pipe(t, c)
		for _, w := range want {
			n, errno := a.send(x.fd, []iovec{{uintptr(fabric.Addr(mem)), 8}}, 8)
			require.Zero(t, errno)
			require.Equal(t, 8, n)
			got := testutil.Scratch(t, 64)
			n, errno = recvBytes(y.fd, fabric.Addr(got), len(got))
			require.Zero(t, errno)
			require.Equal(t, w, fmt.Sprintf("%x", got[:n]))
		}
	}
}

// FuzzRecords feeds a protected connection arbitrary bytes: nothing of them comes out.
func FuzzRecords(f *testing.F) {
	f.Add([]byte{}, false)
	f.Add([]byte{8, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8}, true)
	f.Add(append([]byte{8, 0, 0, 0}, make([]byte, 8+tagSize)...), true)
	f.Add(append([]byte{0xff, 0xff, 0xff, 0xff}, make([]byte, 100)...), false)
	f.Fuzz(func(t *testing.T, b []byte, full bool) {
		c := CryptAuth
		if full {
			c = CryptFull
		}
		_, r, x, y := pipe(t, c)
		b = append(testutil.Scratch(t, len(b)+1)[:0], b...)
		b = b[:min(len(b), 64<<10)]
		if len(b) > 0 {
			_, errno := sendBytes(x.fd, fabric.Addr(b), len(b))
			require.Zero(t, errno)
		}
		to := testutil.Scratch(t, 4096)
		n, errno := r.recv(y.fd, []iovec{{uintptr(fabric.Addr(to)), 4096}}, 4096)
		require.LessOrEqual(t, n, 0)
		require.NotZero(t, errno)
		require.Equal(t, make([]byte, 4096), to)
	})
}
