package shm

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/offheap"
)

// A peer that copies to or from private memory of this side does so by system calls, which
// cannot be revoked. Region.Close must know when the last one has returned. The two sides
// use the protocol of hazard pointers (M. Michael, 2004), with the key of the region as the
// pointer and its table entry as the place where it is found:
//
//	peer (far)                              owner (Region.Close)
//	P1  hazard = key                        W1  table entry: gen, key = 0, gen
//	P2  load gen; another: P5, refuse       W2  load hazard; == key: wait, again
//	P3  one call, of at most maxCall bytes  W3  the memory is nobody's
//	P4  more to do: load gen, as P2; P3
//	P5  hazard = 0
//
// All words are sync/atomic words, which are sequentially consistent on every processor
// that Go supports, and across processes as well, since both map the same pages: there is
// one order of P1, P2, W1 and W2. Suppose that a call P3 is running, or will run, after W2
// has loaded another value than key. Either that load precedes P1: then W1 precedes P2,
// which loads the changed generation, and no call is made. Or the load follows P5, and the
// calls have returned: the kernel has copied when the call returns, P5 is a release store
// after it, and W2 the acquire load that read it, so that the owner's accesses in W3 follow
// the copy. P4 is not needed for this; it bounds how long W2 has to wait.
//
// A peer that is killed between P1 and P5 never executes P5. Its end of the socket reports
// that: the kernel closes a process's descriptors when its last thread has left its last
// system call; a living peer shuts its end down when its endpoint is down, which its owner
// does between calls and never inside one.
//
// Therefore the record of a hazard outlives its endpoint, until the peer has hung up as
// well, and the link, until the peer has ended its use or hung up.

// hazard is the state of a connection that is kept for as long as the peer may access
// private memory over it: the channel segment, in which the peer announces the key it uses,
// and the socket.
type hazard struct {
	mu   sync.Mutex
	hdr  *chanHeader
	mem  []byte // this side's channel
	sock int    // -1 if there is none
	left bool   // the endpoint is down
}

// probing in the hazard word means that the peer tries process_vm_writev on the channel.
const probing = ^uint32(0)

// useWait bounds how long Region.Close waits for a peer that uses the region. One system
// call takes less than a millisecond, so that only a peer that is stopped, or that is not
// scheduled, takes longer.
const useWait = 200 * time.Millisecond

// newHazard creates the record of a connection over which the peer writes to channel c.
func (l *link) newHazard(c *channel) *hazard {
	h := &hazard{hdr: c.hdr, mem: c.mem, sock: -1}
	l.mu.Lock()
	l.hazards[h] = struct{}{}
	l.mu.Unlock()
	return h
}

// holds reports whether the peer may be using the key. Any goroutine may call it.
func (h *hazard) holds(key uint32) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.hdr != nil && h.hdr.hazard.Load() == key && !hungUp(h.sock)
}

// meet sets the socket.
func (h *hazard) meet(sock int) {
	h.mu.Lock()
	h.sock = sock
	h.mu.Unlock()
}

// leave ends the endpoint's use. It notifies the peer, which may use memory until it has
// seen that. Idempotent.
func (h *hazard) leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.left {
		return
	}
	h.left = true
	h.hdr.magic.Store(chanLeft) // no probe begins any longer
	if h.sock >= 0 {
		_ = unix.Shutdown(h.sock, unix.SHUT_WR)
	}
}

// bury releases the record if it is no longer needed: the peer has hung up, or, with idle,
// this side has no memory left that is accessed by keys. It reports whether it was released
// (gone), and whether it will be when the peer hangs up (waits).
func (h *hazard) bury(idle bool) (gone, waits bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.hdr == nil:
		return true, false
	case !h.left:
		return false, false
	case h.sock >= 0 && !hungUp(h.sock) && !(idle && h.hdr.hazard.Load() != probing):
		return false, true
	}
	if h.sock >= 0 {
		_ = unix.Close(h.sock)
	}
	_ = offheap.Free(h.mem, offheap.Rings)
	h.sock, h.mem, h.hdr = -1, nil, nil
	return true, false
}

// hungUp reports whether the other end of a socket has been shut down or closed: its
// endpoint is down or its process has ended.
func hungUp(sock int) bool {
	if sock < 0 {
		return false
	}
	fds := [1]unix.PollFd{{Fd: int32(sock), Events: unix.POLLRDHUP}}
	for {
		n, err := unix.Poll(fds[:], 0)
		if err != unix.EINTR {
			return n == 1 && err == nil
		}
	}
}

// buryHazards releases the records of endpoints that are down and whose peers have hung up.
// l.mu is held.
func (l *link) buryHazards() {
	idle := l.closed && len(l.regions) == 0
	left := 0
	for h := range l.hazards {
		gone, waits := h.bury(idle)
		if gone {
			delete(l.hazards, h)
		}
		if waits {
			left++
		}
	}
	l.left.Store(int32(left))
}

// minBurial and maxBurial bound the intervals at which a closed link checks whether its
// peers have ended their use: mostly at once; much later only if a peer was stopped.
const minBurial, maxBurial = time.Millisecond, 250 * time.Millisecond

// buryLater is buryHazards for a closed link, which is not polled: it runs again after
// wait, at growing intervals, until no record is left. l.mu is held.
func (l *link) buryLater(wait time.Duration) {
	l.buryHazards()
	if len(l.hazards) == 0 {
		return
	}
	time.AfterFunc(wait, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.buryLater(min(2*wait, maxBurial))
	})
}

// inUse reports whether this side's Poll or a peer's system call uses the withdrawn key.
// Ordering partners: cma.borrow and endpoint.answer, which announce the key first and then
// check that it is valid.
func (l *link) inUse(key uint32) bool {
	if l.serving.Load() == key {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for h := range l.hazards {
		if h.holds(key) {
			return true
		}
	}
	return false
}

// quiet waits, for a bounded time, until the withdrawn key is not in use.
func (l *link) quiet(key uint32, wait time.Duration) bool {
	for start := cpu.Ticks(); l.inUse(key); {
		switch waited := cpu.Duration(cpu.Ticks() - start); {
		case waited >= wait:
			return false
		case waited < time.Millisecond:
			cpu.Yield()
		default:
			time.Sleep(100 * time.Microsecond)
		}
	}
	return true
}
