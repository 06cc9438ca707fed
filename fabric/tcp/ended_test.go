//go:build linux

package tcp

import (
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/testutil"
)

// never is a PeerTimeout that no test waits for: what ends sooner was said.
var never = fabric.EndpointOptions{PeerTimeout: 100 * testutil.Limit}

// patient returns two connected endpoints, the first of which dials.
func patient(t *testing.T) (dials, waits *host) {
	a, b := newHost(t, resumes, never, 4096), newHost(t, resumes, never, 4096)
	join(t, a, b)
	dials, waits = dialler(a, b)
	write(t, dials, waits, 8)
	return dials, waits
}

// sever shuts down the sockets of both, and has both notice it.
func sever(t *testing.T, a, b *host) {
	for _, h := range []*host{a, b} {
		require.NoError(t, unix.Shutdown(h.ep.sock.fd, unix.SHUT_RDWR))
		h.poll()
		h.poll()
		n, _ := h.ep.Outages()
		require.Positive(t, n)
	}
}

// An endpoint that is closed without a connection, on either side, with or without its link, ends
// the other one at once, and not when its time is up.
func TestEndsWithoutConnection(t *testing.T) {
	for name, end := range map[string]func(h *host) error{
		"endpoint": func(h *host) error { return h.ep.Close() },
		"link":     func(h *host) error { return h.l.Close() },
	} {
		for side := range 2 {
			dials, waits := patient(t)
			sever(t, dials, waits)
			ends, stays := dials, waits
			if side == 1 {
				ends, stays = waits, dials
			}
			stays.post(stays.write(0, 8, ends.reg.Key(), fabric.FlagSignaled))
			if name == "link" {
				require.NoError(t, ends.reg.Close())
			}
			require.NoError(t, end(ends))
			until(t, name, func() bool { return stays.ep.Err() != nil }, stays)
			require.ErrorIs(t, stays.ep.Err(), fabric.ErrPeerGone)
		}
	}
}

// What the endpoint had executed when it was closed is complete, and only the next request has failed.
func TestEndsWithTally(t *testing.T) {
	dials, waits := patient(t)
	done := waits.ep.out.acks.executed
	dials.got = nil
	wrs := []fabric.WR{dials.write(0, 8, waits.reg.Key(), fabric.FlagSignaled), dials.write(8, 8, waits.reg.Key(), fabric.FlagSignaled)}
	wrs[0].ID, wrs[1].ID = 1, 2
	dials.post(wrs[0])
	until(t, "executed", func() bool {
		waits.l.Poll(waits.cs[:])
		return waits.ep.out.acks.executed == done+1
	})
	require.NoError(t, unix.Shutdown(waits.ep.sock.fd, unix.SHUT_RDWR)) // the acknowledgement is not sent, or not read
	require.NoError(t, waits.ep.Close())
	testutil.Holding(&dials.ep.mu, func() { require.NoError(t, unix.Shutdown(dials.ep.sock.fd, unix.SHUT_RDWR)) })
	until(t, "noticed", func() bool { n, _ := dials.ep.Outages(); return n > 0 || dials.ep.Err() != nil }, dials)
	_, _ = dials.ep.Post(wrs[1:])
	until(t, "down", func() bool { return dials.ep.Err() != nil }, dials)
	dials.poll()
	require.Contains(t, dials.got, fabric.Completion{ID: 1, EP: dials.ep.id, Op: fabric.OpWrite})
	require.NotContains(t, dials.got, fabric.Completion{ID: 2, EP: dials.ep.id, Op: fabric.OpWrite})
	require.ErrorIs(t, dials.ep.Err(), fabric.ErrPeerGone)
}

// downAfterRefusal waits until a is down, whose request b has refused: also if b is closed before.
func downAfterRefusal(t *testing.T, a, b *host, closed bool) {
	if closed {
		require.NoError(t, b.ep.Close())
		until(t, "down", func() bool { return a.ep.Err() != nil }, a)
		return
	}
	until(t, "both are down", func() bool { return a.ep.Err() != nil && b.ep.Err() != nil }, a, b)
	require.ErrorIs(t, b.ep.Err(), fabric.ErrRemoteAccess)
}

// A refusal that was lost with its connection reaches the other side on the next one, or when it asks
// an endpoint that was closed since; requests before it are complete.
func TestRefusalsAreNotLost(t *testing.T) {
	for _, closes := range []bool{false, true} {
		for side := range 2 {
			a, b := patient(t)
			if side == 1 {
				a, b = b, a
			}
			a.got = nil
			good, bad, behind := a.write(0, 8, b.reg.Key(), fabric.FlagSignaled), a.write(8, 8, b.reg.Key(), fabric.FlagSignaled), a.write(16, 8, b.reg.Key(), fabric.FlagSignaled)
			good.ID, bad.ID, behind.ID = 1, 2, 3
			bad.RKey++
			require.NoError(t, unix.Shutdown(b.ep.sock.fd, unix.SHUT_WR))
			n, err := a.ep.Post([]fabric.WR{good, bad, behind})
			require.NoError(t, err)
			require.Equal(t, 3, n)
			until(t, "it is refused", func() bool { return b.ep.resp.refused }, b)
			downAfterRefusal(t, a, b, closes)
			a.poll()
			require.ErrorIs(t, a.ep.Err(), fabric.ErrRemoteAccess)
			for _, c := range []fabric.Completion{
				{ID: 1, EP: a.ep.id, Op: fabric.OpWrite},
				{ID: 2, EP: a.ep.id, Op: fabric.OpWrite, Status: fabric.StatusRemoteAccess},
				{ID: 3, EP: a.ep.id, Op: fabric.OpWrite, Status: fabric.StatusFlushed},
				{EP: a.ep.id, Op: fabric.OpDown, Status: fabric.StatusRemoteAccess},
			} {
				require.Contains(t, a.got, c)
			}
		}
	}
}

// Reads whose region is closed before they are answered are refused, with what is behind them: also a
// request that was refused before, and on a connection that replaces a lost one, or by what is kept of an
// endpoint that was closed since.
func TestRefusedReadsAreNotLost(t *testing.T) {
	for name, behind := range map[string]func(a *host, w *fabric.WR){
		"write": func(_ *host, w *fabric.WR) { w.Op = fabric.OpWrite; w.RKey++ },
		"read":  func(_ *host, w *fabric.WR) { w.RKey++ },
		"none":  nil,
	} {
		for _, closes := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s closes=%t", name, closes), func(t *testing.T) {
				a, b := patient(t)
				a.got = nil
				reg, err := b.l.Alloc(4096, fabric.AccessAll)
				require.NoError(t, err)
				var wrs []fabric.WR
				for i := range 4 {
					w := a.write(8*i, 8, reg.Key(), fabric.FlagSignaled)
					w.ID, w.Op = uint64(i+1), fabric.OpRead
					wrs = append(wrs, w)
				}
				if behind != nil {
					behind(a, &wrs[3])
				}
				require.NoError(t, unix.Shutdown(b.ep.sock.fd, unix.SHUT_WR)) // the refusal is not sent
				n, err := a.ep.Post(wrs)
				require.NoError(t, err)
				require.Equal(t, 4, n)
				p := &b.ep.resp
				until(t, "all have arrived", func() bool { b.ep.receive(); return p.replies.tail-p.replies.head == 4 || p.refused })
				require.Equal(t, behind != nil, p.refused)
				require.NoError(t, reg.Close())
				until(t, "the refusal is lost", func() bool { n, _ := b.ep.Outages(); return n > 0 }, b)
				require.True(t, p.refused)
				downAfterRefusal(t, a, b, closes)
				require.ErrorIs(t, a.ep.Err(), fabric.ErrRemoteAccess)
				a.poll()
				for i, w := range wrs {
					c := fabric.Completion{ID: w.ID, EP: a.ep.id, Op: w.Op, Status: fabric.StatusFlushed}
					if i == 0 {
						c.Status = fabric.StatusRemoteAccess
					}
					require.Contains(t, a.got, c)
				}
			})
		}
	}
}

// However often a refusal is sent, and whatever it replaces, the tally has the requests that were accepted.
func TestTallyAfterRefusals(t *testing.T) {
	for _, behind := range []bool{true, false} {
		s := newStage(t, openLink(t), 4)
		s.target(fabric.AccessAll)
		s.ep.resumes = true
		p, k := &s.ep.resp, s.reg.Key()
		for seq := range uint32(3) {
			p.replies.push(reply{kind: replyRead, seq: seq, rkey: k.RKey, n: 8, val: k.Addr})
			s.ep.out.acks.executed++
		}
		require.NoError(t, s.reg.Close())
		if behind {
			p.refuse(3, fabric.StatusRemoteInvalid)
		}
		want := tally{executed: 3, accepted: 3}
		require.Equal(t, want, tallyOf(s.ep))
		for range 3 {
			require.True(t, p.put())
			require.True(t, p.replies.empty())
			require.Equal(t, want, tallyOf(s.ep))
			h, _ := s.hear()
			require.Equal(t, header{op: opNak, ack: 3, status: fabric.StatusRemoteAccess}, h)
			require.Nil(t, p.resume(0))
			require.Equal(t, want, tallyOf(s.ep))
			require.Equal(t, replyNak, p.replies.front().kind)
		}
	}
}

// refusalBehindLanes returns an endpoint that has received a refusal, behind a read whose payload is to
// come on the lanes, and the latter.
func refusalBehindLanes(t *testing.T) (s *stage, lanes []*os.File) {
	s = newStage(t, openLink(t), 4)
	s.target(fabric.AccessAll)
	lanes = s.giveLanes(1)
	mem := []fabric.SGE{{Addr: s.reg.Key().Addr, Len: 8, LKey: s.reg.LKey()}}
	n, err := s.ep.Post([]fabric.WR{
		{ID: 1, Op: fabric.OpRead, Flags: fabric.FlagSignaled, Local: mem, RemoteAddr: 8, RKey: 1},
		{ID: 2, Op: fabric.OpRead, Flags: fabric.FlagSignaled, Local: mem, RemoteAddr: 8, RKey: 2},
	})
	require.NoError(t, err)
	require.Equal(t, 2, n)
	s.say((&header{op: opReadReply, flags: wireLanes, ack: 1, n: 8}).append(nil))
	s.say((&header{op: opNak, ack: 1, seq: 1, status: fabric.StatusRemoteAccess}).append(nil))
	until(t, "the refusal", func() bool { return s.ep.req.nak.op != 0 }, s.host)
	require.NoError(t, s.ep.Err())
	return s, lanes
}

// A refusal waits for the payload of reads before it that comes on the lanes.
func TestRefusalBehindLanes(t *testing.T) {
	s, lanes := refusalBehindLanes(t)
	tell(t, lanes[0], append((&header{op: opBulk, flags: wireReply, n: 8}).append(nil), make([]byte, 8)...))
	s.wantDown(fabric.StatusRemoteAccess)
	require.Equal(t, []fabric.Completion{{EP: 7, ID: 1, Op: fabric.OpRead}, {EP: 7, ID: 2, Op: fabric.OpRead, Status: fabric.StatusRemoteAccess}}, s.got[:2])
}

// A refusal that waits when the connection is lost comes again on the next one. The payload before it is
// lost: the peer executes no request for it.
func TestRefusalBehindLanesComesAgain(t *testing.T) {
	s, _ := refusalBehindLanes(t)
	require.Nil(t, s.ep.req.resume(&tally{executed: 1, accepted: 1}))
	s.say((&header{op: opNak, ack: 1, seq: 1, status: fabric.StatusRemoteAccess}).append(nil))
	s.wantDown(fabric.StatusPeerGone)
	require.ErrorIs(t, s.ep.Err(), errAnswerLost)
	require.Equal(t, []fabric.Completion{{EP: 7, ID: 1, Op: fabric.OpRead, Status: fabric.StatusPeerGone}, {EP: 7, ID: 2, Op: fabric.OpRead, Status: fabric.StatusFlushed}}, s.got[:2])
}

// A refusal of what was not sent, behind what is not complete, or a second one breaks the protocol.
func TestHostileRefusals(t *testing.T) {
	l := openLink(t)
	nak := func(seq uint32) []byte {
		return (&header{op: opNak, ack: 2, seq: seq, status: fabric.StatusRemoteAccess}).append(nil)
	}
	for what, frames := range map[string][][]byte{
		"acknowledged": {nak(0)}, "behind an open read": {nak(4)}, "not sent": {nak(5)}, "far ahead": {nak(1 << 31)},
	} {
		s := inFlightOn(t, l)
		for _, f := range frames {
			s.say(f)
		}
		s.wantDown(fabric.StatusRemoteInvalid)
		t.Log(what)
	}
	s := inFlightOn(t, l)
	q := &s.ep.req
	require.Nil(t, q.resume(&tally{executed: 2, accepted: 1}))
	require.EqualValues(t, 2, q.sent)
	f := q.onNak(&header{op: opNak, seq: 5, status: fabric.StatusRemoteAccess})
	require.ErrorIs(t, f.cause, errBadNak)
	f = q.onNak(&header{op: opNak, seq: 2, status: fabric.StatusRemoteAccess})
	require.Equal(t, fabric.StatusRemoteAccess, f.status, "of a request that was sent on the lost connection")
	f = q.onNak(&header{op: opNak, seq: 2, status: fabric.StatusRemoteAccess})
	require.ErrorIs(t, f.cause, errBadNak, "twice")

	s = inFlightOn(t, l)
	q = &s.ep.req
	q.again = []uint32{2, 3}
	f = q.onNak(&header{op: opNak, seq: 4, status: fabric.StatusRemoteAccess})
	require.Equal(t, &failure{status: fabric.StatusPeerGone, cause: errAnswerLost}, f)
}

// Only the peer learns that an endpoint has ended, and only in place of a lost connection.
func TestStrangersLearnNoEnd(t *testing.T) {
	dials, waits := patient(t)
	mine, nonce := dials.ep.token, dials.ep.nonce
	require.NoError(t, waits.ep.Close())
	a := address{token: waits.ep.token, nonce: waits.ep.nonce, hosts: waits.l.cfg.Advertise[:1], port: waits.l.port}
	ask := func(key token, nonce uint64, a *address, h hello) error {
		co := &connector{l: dials.l, token: key, nonce: nonce}
		return co.dialHosts(testutil.Context(t, testutil.Limit), a, h, testutil.Limit).err
	}
	var end *endedError
	require.ErrorAs(t, ask(mine, nonce, &a, hello{attempt: inquiry}), &end)
	require.Equal(t, endClosed, end.end)
	require.ErrorAs(t, ask(mine, nonce, &a, hello{attempt: 7}), &end)

	silent := func(what string, err error) {
		require.Error(t, err, what)
		require.NotErrorAs(t, err, new(*endedError), what)
	}
	silent("of the first connection", ask(mine, nonce, &a, hello{attempt: firstAttempt}))
	silent("of no resumption", ask(mine, nonce, &a, hello{}))
	silent("another peer", ask(mine, nonce+1, &a, hello{attempt: inquiry}))
	wrong := a
	wrong.token[0]++
	silent("who does not know the token", ask(mine, nonce, &wrong, hello{attempt: inquiry}))
	deaf := mine
	deaf[0]++
	require.ErrorIs(t, ask(deaf, nonce, &a, hello{attempt: inquiry}), errNotPeer, "the answer is for the peer")

	waits.l.mu.Lock()
	waits.l.ended[0].until = time.Now()
	waits.l.mu.Unlock()
	silent("when its time is up", ask(mine, nonce, &a, hello{attempt: inquiry}))
	waits.l.pending.mu.Lock()
	defer waits.l.pending.mu.Unlock()
	require.Empty(t, waits.l.pending.conns)
}

// Inquiries find endpoints that have not ended, which hang up and keep nothing.
func TestInquiriesChangeNothing(t *testing.T) {
	a, b := patient(t)
	for _, h := range []*host{a, b} {
		peer := b
		if h == b {
			peer = a
		}
		j := peer.ep.dialHosts(testutil.Context(t, testutil.Limit), &peer.ep.peer, hello{attempt: inquiry}, testutil.Limit)
		require.Error(t, j.err)
		require.NotErrorAs(t, j.err, new(*endedError))
		require.Empty(t, h.ep.arrivals)
		require.NoError(t, h.ep.Err())
	}
	write(t, a, b, 8)
	write(t, b, a, 8)
	n, _ := a.ep.Outages()
	require.Zero(t, n)
}

// What is kept of endpoints that have ended is bounded, in number and in time, and only of those that
// resume.
func TestEndedAreBounded(t *testing.T) {
	l := openLink(t)
	end := func(resumes bool, timeout time.Duration) uint64 {
		ep, err := l.NewEndpoint(fabric.EndpointOptions{Depth: 1, PeerTimeout: timeout})
		require.NoError(t, err)
		e := ep.(*endpoint)
		e.resumes = resumes
		require.NoError(t, e.Close())
		return e.nonce
	}
	end(false, time.Hour)
	require.Empty(t, l.ended)
	first := end(true, time.Hour)
	for range maxEnded {
		end(true, time.Hour)
	}
	require.Len(t, l.ended, maxEnded)
	require.Nil(t, endedAs(l, first, time.Now()))
	require.NotNil(t, endedAs(l, l.ended[0].nonce, time.Now()))
	for i := range l.ended {
		l.ended[i].until = time.Time{}
	}
	last := end(true, time.Hour)
	require.Len(t, l.ended, 1)
	require.NotNil(t, endedAs(l, last, time.Now()))
	require.Nil(t, endedAs(l, last, time.Now().Add(24*time.Hour)))
	require.Empty(t, l.byNonce)
}

// A process that is gone is noticed by the side that waits as well: nothing listens there.
func TestInquiryFindsNobody(t *testing.T) {
	_, waits := patient(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	a := waits.ep.peer
	a.hosts, a.port = waits.l.cfg.Advertise, uint16(ln.Addr().(*net.TCPAddr).Port)
	require.NoError(t, ln.Close())
	require.ErrorIs(t, waits.ep.inquire(testutil.Context(t, testutil.Limit), &a), unix.ECONNREFUSED)
}
