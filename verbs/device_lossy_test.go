//go:build linux

package verbs_test

import (
	"encoding/binary"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/verbs"
)

// These tests check a device on a network that loses, repeats and reorders packets. Without
// such a network they pass trivially; tests/softroce runs them under netem. They show the
// defects of rdma_rxe (docs/softroce.md) and verify the properties that fabric/ibv relies
// on. Every other device must be correct.

// rxe reports whether e's device is rdma_rxe, by its vendor ID.
func (e *end) rxe() bool { return e.dev.VendorID == 0xffffff }

// lossyRounds returns a small number if no packet is lost.
func lossyRounds() int {
	if os.Getenv("RMA_SOFTROCE_TOPOLOGY") == "two" {
		return 200
	}
	return 20
}

// A successful read is complete if the request posted behind it succeeded, too. rdma_rxe
// takes an acknowledgement that arrives between the packets of a read for its end: the read
// succeeds, incomplete, and the queue pair breaks.
func TestReadIsVouchedForByWhatFollows(t *testing.T) {
	a, b := pair(t)
	const n = 6*4096 - 100
	short := 0
	for i := range lossyRounds() {
		pattern(b.mem[:n], i)
		clear(a.mem[:n])
		a.post(verbs.SendWR{Op: verbs.OpWrite, SGL: []verbs.SGE{a.mr.SGE(1<<19, 64)}, RemoteAddr: b.mr.Addr() + 1<<19, RKey: b.mr.RKey()},
			verbs.SendWR{ID: 1, Op: verbs.OpRead, SGL: []verbs.SGE{a.mr.SGE(0, n)}, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey(), Flags: verbs.SendSignaled},
			verbs.SendWR{ID: 2, Op: verbs.OpWrite, SGL: []verbs.SGE{a.mr.SGE(1<<19, 8)}, RemoteAddr: b.mr.Addr() + 1<<19, RKey: b.mr.RKey(), Flags: verbs.SendSignaled})
		a.ok(verbs.WCRead, 1)
		if w := a.poll(); w.Status == verbs.WCSuccess {
			require.Equal(t, b.mem[:n], a.mem[:n], "round %d", i)
			continue
		} else if !a.rxe() {
			require.NoError(t, w.Err())
		}
		short++
		rejoin(a, b, path{})
	}
	if short > 0 {
		t.Logf("%d of %d reads succeeded and broke the queue pair", short, lossyRounds())
	}
}

// An atomic is executed once, and its result is right or does not arrive. rdma_rxe
// acknowledges a repeated write with the number of the atomic behind it, which completes
// the atomic without its result.
func TestAtomicResultArrivesOrDoesNot(t *testing.T) {
	a, b := pair(t)
	if a.dev.AtomicCap == verbs.AtomicNone {
		t.Skip("the device has no atomics")
	}
	const poison = 0x5eed0bad5eed0bad
	word := func(e *end, off int) uint64 { return binary.NativeEndian.Uint64(e.mem[off:]) }
	write := verbs.SendWR{Op: verbs.OpWrite, SGL: []verbs.SGE{a.mr.SGE(4096, 64)}, RemoteAddr: b.mr.Addr() + 4096, RKey: b.mr.RKey()}
	add := verbs.SendWR{ID: 1, Op: verbs.OpFetchAdd, SGL: []verbs.SGE{a.mr.SGE(0, 8)}, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey(), Operand: 1, Flags: verbs.SendSignaled}
	lost := 0
	for i := range uint64(lossyRounds()) {
		binary.NativeEndian.PutUint64(a.mem, poison)
		a.post(write, write, write, add)
		a.ok(verbs.WCFetchAdd, 1)
		require.Equal(t, i+1, word(b, 0), "it happens once")
		if got := word(a, 0); got == poison && a.rxe() {
			lost++
		} else {
			require.Equal(t, i, got)
		}
	}
	if lost > 0 {
		t.Logf("%d of %d results were lost", lost, lossyRounds())
	}
}

// A fenced request starts when the reads and atomics before it are complete. When it has to
// be retransmitted, rdma_rxe also waits for those behind it, which wait for it: a deadlock
// that no time-out ends.
func TestFencedRequestIsRepeated(t *testing.T) {
	a, b := pair(t)
	if a.dev.AtomicCap == verbs.AtomicNone {
		t.Skip("the device has no atomics")
	}
	fast := path{set: true, timeout: 12, retry: 6, rnr: 6} // gives up after 140 ms
	rejoin(a, b, fast)
	add := verbs.SendWR{Op: verbs.OpFetchAdd, SGL: []verbs.SGE{a.mr.SGE(0, 8)}, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey(), Operand: 1}
	fenced := verbs.SendWR{Op: verbs.OpWrite, SGL: []verbs.SGE{a.mr.SGE(64, 8)}, RemoteAddr: b.mr.Addr() + 64, RKey: b.mr.RKey(), Flags: verbs.SendFence}
	last := add
	last.ID, last.Flags = 1, verbs.SendSignaled
	stuck := 0
	for i := range lossyRounds() / 4 {
		a.post(add, fenced, last)
		// A device that has not given up after ten times its time-out is stuck.
		w, ok := a.pollFor(1500 * time.Millisecond)
		if ok && w.Status == verbs.WCSuccess {
			continue
		}
		require.True(t, a.rxe(), "round %d: %v, %v", i, ok, w.Err())
		stuck++
		rejoin(a, b, fast)
		if stuck == 2 {
			break // enough rounds
		}
	}
	if stuck > 0 {
		t.Logf("stuck behind a fence %d times", stuck)
	}
}
