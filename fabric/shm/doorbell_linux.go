package shm

import (
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// doorbell wakes the peer's owner where it sleeps. It is for the owner.
type doorbell struct {
	link   *link
	peer   *ctlHeader // with the word that says whether the peer sleeps
	sock   int
	woken  uint64 // value of the peer's sleep word that was answered
	failed bool   // the kernel had no memory for the last wake message
	word   atomic.Uint64
}

// fence keeps stores before it ahead of loads behind it: a sequentially
// consistent store to a word of our own, in front of an atomic load.
func (d *doorbell) fence() { d.word.Store(0) }

// wake wakes the peer if it sleeps. The caller has put a full fence between
// what it published and the call (fence, or an atomic store as the last thing).
// Ordering partner: link.Arm.
func (d *doorbell) wake() {
	if s := d.peer.sleep.Load(); s&1 != 0 {
		d.ring(s)
	}
}

// ring sends the wake message, once a sleep, which s numbers. A full socket is as good: it has
// something to read in it. Where the kernel has no memory it is sent again soon.
func (d *doorbell) ring(s uint64) {
	if s == d.woken {
		return
	}
	err := d.link.sendWake(d.sock)
	if d.failed = err == unix.ENOBUFS || err == unix.ENOMEM; !d.failed {
		d.woken = s
	}
}

// sendWake sends the wake message.
func sendWake(sock int) error {
	for {
		if err := unix.Send(sock, wakeMessage, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL); err != unix.EINTR {
			return err
		}
	}
}
