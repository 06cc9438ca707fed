package rmanet

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/internal/testutil"
)

// liar is rank 0 played by the test: an engine without this package, and the frames that it
// receives.
type liar struct {
	t   *testing.T
	eng *rma.Engine
}

func (l *liar) tell(f frame) { l.raw(tagControl, f.append(nil)) }

func (l *liar) raw(tag uint32, b []byte) { l.eng.Peer(1).SendFunc(tag, b, nil) }

// frame returns the next control frame of the victim.
func (l *liar) frame() frame {
	buf := make([]byte, 4*frameMax)
	n, err := l.eng.Peer(1).RecvTag(tagControl, buf).Wait(testutil.Context(l.t, 20*time.Second))
	require.NoError(l.t, err)
	f, rest, err := parseFrame(buf[:n])
	require.NoError(l.t, err)
	require.Empty(l.t, rest)
	return f
}

// A violation of the protocol ends the peer's connections with a typed error, and nothing
// else: other peers continue, and nothing is held or written for the liar.
func TestLies(t *testing.T) {
	t.Parallel()
	open := frame{kind: kindOpen, num: 1, n: 1 << 20, service: "pair"}
	lies := map[string]func(l *liar){
		"more than the window":       func(l *liar) { l.raw(tagData|1, make([]byte, minWindow+1)) },
		"much more than it":          func(l *liar) { l.raw(tagData|1, make([]byte, 1<<20)) },
		"nothing":                    func(l *liar) { l.raw(tagData|1, nil) },
		"a stream not opened":        func(l *liar) { l.raw(tagData|2, []byte("x")) },
		"a stream nobody opened":     func(l *liar) { l.raw(tagData|toOpener|1, []byte("x")) },
		"stream 0":                   func(l *liar) { l.raw(tagData, []byte("x")) },
		"bad control tag":            func(l *liar) { l.raw(tagControl+1, []byte("x")) },
		"no frame":                   func(l *liar) { l.raw(tagControl, nil) },
		"half a frame":               func(l *liar) { l.raw(tagControl, open.append(nil)[:9]) },
		"too many frames":            func(l *liar) { l.raw(tagControl, make([]byte, 17*frameMax)) },
		"opened twice":               func(l *liar) { l.tell(open) },
		"opened by the wrong side":   func(l *liar) { l.tell(frame{kind: kindOpen, toOpener: true, num: 2, service: "pair"}) },
		"window of 2 GiB":            func(l *liar) { l.tell(frame{kind: kindOpen, num: 2, n: 2 << 30, service: "pair"}) },
		"accepted by the wrong side": func(l *liar) { l.tell(frame{kind: kindAccept, num: 1, n: 5}) },
		"credit taken back":          func(l *liar) { l.tell(frame{kind: kindCredit, num: 1, n: 5}) },
		"credit without bounds":      func(l *liar) { l.tell(frame{kind: kindCredit, num: 1, n: 1 << 62}) },
		"end at another offset":      func(l *liar) { l.tell(frame{kind: kindFin, num: 1, n: 5}) },
		"bytes after the end": func(l *liar) {
			l.tell(frame{kind: kindFin, num: 1})
			l.raw(tagData|1, []byte("x"))
		},
		"end after the end": func(l *liar) {
			l.tell(frame{kind: kindFin, num: 1})
			l.tell(frame{kind: kindFin, num: 1})
		},
		"credit for a stream to come": func(l *liar) { l.tell(frame{kind: kindCredit, num: 3, n: 5}) },
	}
	for name, lie := range lies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			es := job(t, 3, "shm")
			l := &liar{t, es[0]}
			_, err := Configure(es[1], Config{Window: minWindow})
			require.NoError(t, err)
			good, goodEnd := connect(t, es, 2, 1)
			ln, err := Of(es[1]).Listen("pair")
			require.NoError(t, err)
			l.tell(open)
			require.Equal(t, frame{kind: kindAccept, toOpener: true, num: 1, n: minWindow}, l.frame())
			c, err := ln.Accept()
			require.NoError(t, err)
			victim := c.(*Conn)
			lie(l)
			testutil.Eventually(t, 20*time.Second, func() bool {
				victim.mu.Lock()
				defer victim.mu.Unlock()
				return victim.wr.err != nil
			}, "found out")
			require.ErrorIs(t, victim.s.why(), ErrProtocol)
			_, err = victim.Write([]byte("x"))
			require.ErrorIs(t, err, syscall.ECONNRESET)
			require.ErrorIs(t, err, ErrProtocol)
			for err = nil; err == nil; {
				_, err = victim.Read(make([]byte, 10))
			}
			require.True(t, errors.Is(err, ErrProtocol) || errors.Is(err, io.EOF), "%v", err)
			require.Equal(t, frame{kind: kindReset, toOpener: true, num: 1, n: resetProtocol}, l.frame())
			_, err = Dial(testutil.Context(t, 10*time.Second), es[1], "0:x")
			require.ErrorIs(t, err, ErrProtocol)
			l.tell(frame{kind: kindOpen, num: 4, n: 1 << 20, service: "pair"})
			require.Equal(t, frame{kind: kindReset, toOpener: true, num: 4, n: resetProtocol}, l.frame())
			l.raw(tagData|1, []byte("x")) // dropped
			_, err = good.Write([]byte("fine"))
			require.NoError(t, err)
			_, err = io.ReadFull(goodEnd, make([]byte, 4))
			require.NoError(t, err)
		})
	}
}

// Frames of ended connections are no violation: they crossed the end in flight.
func TestLateFrames(t *testing.T) {
	t.Parallel()
	es := job(t, 2, "tcp")
	l := &liar{t, es[0]}
	ln, err := Of(es[1]).Listen("pair")
	require.NoError(t, err)
	l.tell(frame{kind: kindOpen, num: 5, n: 1 << 20, service: "pair"})
	require.EqualValues(t, kindAccept, l.frame().kind)
	c, err := ln.Accept()
	require.NoError(t, err)
	l.raw(tagData|5, []byte("x"))
	_, err = io.ReadFull(c, make([]byte, 1))
	require.NoError(t, err)
	require.NoError(t, c.(*Conn).Abort())
	require.Equal(t, frame{kind: kindReset, toOpener: true, num: 5, n: resetAborted}, l.frame())
	l.raw(tagData|5, []byte("crossed it"))
	l.raw(tagData|5, make([]byte, 100_000))
	l.tell(frame{kind: kindCredit, num: 5, n: 1 << 21})
	l.tell(frame{kind: kindReset, num: 5, n: 77})
	l.tell(frame{kind: kindOpen, num: 6, n: 1 << 20, service: "nobody"})
	require.Equal(t, frame{kind: kindReset, toOpener: true, num: 6, n: resetRefused}, l.frame())
	require.NoError(t, Of(es[1]).sessions[0].why())
}

// An acceptance and bytes that meet the end of Dial's context are no violation.
func TestDialEndsAtTheAcceptance(t *testing.T) {
	t.Parallel()
	es := job(t, 2, "shm")
	s := Of(es[1]).sessions[0]
	c := newConn(s, 1, true)
	s.opened[1], s.last = c, 1
	c.mu.Lock()
	c.endLocked(net.ErrClosed) // reset, which removes c from the session next
	c.mu.Unlock()
	require.NoError(t, s.frame(frame{kind: kindAccept, toOpener: true, num: c.num, n: minWindow}))
	require.NoError(t, s.frame(frame{kind: kindCredit, toOpener: true, num: c.num, n: minWindow + 1}))
	require.True(t, s.arriving(rma.Envelope{Tag: tagData | toOpener | c.num, Len: 1}, true).Unwanted)
	require.NoError(t, s.frame(frame{kind: kindFin, toOpener: true, num: c.num, n: 1}))
	require.NoError(t, s.why())
	c.ended()
	require.Empty(t, s.all())
}

// However often a peer wakes a writer that waits for memory, by credit for example, the writer is noted once.
func TestStarvedWriterIsNotedOnce(t *testing.T) {
	t.Parallel()
	es := job(t, 2, "shm")
	c, d := connect(t, es, 1, 0)
	defer d.Close()
	s := c.s
	s.out.Add(s.n.cfg.Memory)
	for range 100 {
		require.Nil(t, s.lend(c, 1, newBlock))
	}
	require.Len(t, s.starved, 1)
	require.NoError(t, c.Abort())
	require.Empty(t, s.starved)
	s.out.Add(-s.n.cfg.Memory)
}

// A peer that makes this side answer and does not take the answers occupies bounded memory.
func TestAnswersAreBounded(t *testing.T) {
	t.Parallel()
	es := job(t, 2, "shm")
	_, err := Of(es[1]).Listen("pair")
	require.NoError(t, err)
	s := Of(es[1]).sessions[0]
	for num := uint32(1); s.why() == nil; num++ {
		require.Less(t, num, uint32(numberMax/2))
		b := make([]byte, 0, 16*frameMax)
		for len(b)+frameMax < cap(b) {
			b = (&frame{kind: kindOpen, num: num, service: "nobody"}).append(b)
			num++
		}
		ctx := testutil.Context(t, 30*time.Second)
		require.NoError(t, es[0].Peer(1).SendTag(tagControl, b).Wait(ctx))
	}
	require.ErrorIs(t, s.why(), ErrProtocol)
	require.LessOrEqual(t, s.waiting.Load(), int64(maxControl)+1)
}

// A request of one peer takes no step for each request that another one has waiting.
func TestWaitingRequestsAreNotSearched(t *testing.T) {
	t.Parallel()
	es := job(t, 3, "shm")
	n, err := Configure(es[1], Config{Streams: 3, Linger: -1})
	require.NoError(t, err)
	l, err := n.Listen("pair")
	require.NoError(t, err)
	many := n.sessions[0]
	for num := range uint32(6) {
		require.NoError(t, many.opens(frame{kind: kindOpen, num: num + 1, service: "pair"}))
	}
	func() {
		for _, o := range []*opening{many.waits[5], many.waits[6]} {
			o.s = nil // to look at it would crash
			defer func() { o.s = many }()
		}
		require.NoError(t, n.sessions[2].opens(frame{kind: kindOpen, num: 1, service: "pair"}))
	}()
	accepts := func(rank, num int) {
		c, err := l.Accept()
		require.NoError(t, err)
		require.Equal(t, Addr{rank, own(uint32(num))}, c.RemoteAddr())
		require.NoError(t, c.(*Conn).Abort()) // and the next one of the rank has room
	}
	for num := range 3 {
		accepts(0, num+1)
	}
	accepts(2, 1)
	for num := range 3 {
		accepts(0, num+4)
	}
	require.Empty(t, l.waits)
}

// A peer that does not end the streams that are closed here makes this side keep a bounded number.
func TestEndingStreamsAreBounded(t *testing.T) {
	t.Parallel()
	es := job(t, 2, "shm")
	_, err := es[0].Handle(tagControl, func(rma.Envelope, [][]byte) {})
	require.NoError(t, err)
	s := Of(es[1]).sessions[0]
	dial := func() (*Conn, error) {
		c, err := s.open("pair")
		if err == nil {
			err = s.frame(frame{kind: kindAccept, toOpener: true, num: c.num, n: minWindow})
		}
		return c, err
	}
	kept := 0
	for ; err == nil; kept++ {
		require.LessOrEqual(t, len(s.opened), maxControl)
		if kept%1000 == 0 {
			testutil.Eventually(t, testutil.Limit, func() bool { return s.waiting.Load() == 0 }, "all are taken")
		}
		var c *Conn
		if c, err = dial(); err == nil {
			require.NoError(t, c.Close())
		}
	}
	require.ErrorIs(t, err, syscall.ENOBUFS)
	_, err = Dial(testutil.Context(t, testutil.Limit), es[1], "0:pair")
	require.ErrorIs(t, err, syscall.ENOBUFS)
	require.NoError(t, s.frame(frame{kind: kindFin, toOpener: true, num: 1}))
	c, err := dial()
	require.NoError(t, err)
	require.NoError(t, c.Abort())
}

// Whatever a peer sends, nothing is written out of bounds, nothing hangs, and the
// connections of others remain.
func FuzzMessages(f *testing.F) {
	for _, g := range golden {
		f.Add(binary.LittleEndian.AppendUint32(nil, tagControl), g.f.append(nil))
	}
	f.Add(binary.LittleEndian.AppendUint32(nil, tagData|1), []byte("bytes"))
	es := job(f, 2, "shm")
	n := Of(es[1])
	l, err := n.Listen("fuzz")
	require.NoError(f, err)
	defer l.Close()
	f.Fuzz(func(t *testing.T, tag, b []byte) {
		var four [4]byte
		copy(four[:], tag)
		s := newSession(n, 0)
		if err := s.opens(frame{kind: kindOpen, num: 1, n: 4096, service: "fuzz"}); err != nil {
			t.Fatal(err)
		}
		for _, inPlace := range []bool{true, false} {
			m := rma.Envelope{Tag: tagData&^tagIgnore | binary.LittleEndian.Uint32(four[:])&tagIgnore, Len: len(b)}
			land := s.arriving(m, inPlace)
			switch {
			case land.Later, land.Unwanted:
			case land.Buf != nil:
				copy(land.Buf[:len(b)], b)
				s.arrived(land.Token, [][]byte{land.Buf[:len(b)]}, nil)
			default:
				s.arrived(land.Token, [][]byte{b[:len(b)/2], b[len(b)/2:]}, nil)
			}
		}
		s.fail(io.EOF)
		if c, err := l.next(); c != nil && err == nil {
			c.Close()
		}
	})
}
