package shm

import (
	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/internal/softlink"
)

// A process_vm call costs about a microsecond before it moves anything: it finds the
// process, takes its address space, and pins pages. Requests of one list that go the
// same way share it.

// maxTogether bounds the bytes of requests that share a call: beyond it the call
// itself is lost in the copying, and the completion of the first is held up by the
// last.
const maxTogether = 64 << 10

// together is how many requests from the first on one call can carry out: of one kind
// and on the region x, which is borrowed, valid as far as is known here, within the
// call's pieces, and not more than Post will take. The first has been checked.
func (ep *endpoint) together(wrs []fabric.WR, x *xlate) int {
	first := &wrs[0]
	if !storesInOrder && first.Op == fabric.OpWrite {
		return 1 // the last words of writes need calls of their own
	}
	need := softlink.RemoteNeed(first.Op)
	room := ep.depth - ep.cq.Len() - ep.q.len() // each may leave a completion
	local, remote, bytes := 0, 0, uint64(0)
	k := 0
	for ; k < len(wrs) && k < room; k++ {
		wr := &wrs[k]
		n := wr.Len()
		local += len(wr.Local)
		remote += 2
		bytes += n
		if local > maxIov || remote > maxIov || bytes > maxTogether {
			break
		}
		if k == 0 {
			if wr.Flags&fabric.FlagNotify != 0 {
				return 1
			}
			continue
		}
		if wr.Op != first.Op || wr.RKey != first.RKey || wr.Flags&fabric.FlagNotify != 0 || n == 0 ||
			softlink.CheckShape(wr, &ep.link.caps) != "" || !ep.link.keys.CheckLocal(wr) ||
			!x.holds(wr.RemoteAddr, n, need) {
			break
		}
	}
	return max(k, 1)
}

// moveList moves all bytes of the requests, of one kind, in one call, piece after
// piece; the last word of each write is a piece of its own. An error, or less than all,
// leaves it open what was moved.
func (ep *endpoint) moveList(wrs []fabric.WR) error {
	l := ep.link
	nl, nr, bytes := 0, 0, uint64(0)
	for i := range wrs {
		wr := &wrs[i]
		var c cursor
		n := wr.Len()
		k, _ := c.iovecs(l.liov[nl:], wr.Local, n)
		tail := uint64(0)
		if wr.Op == fabric.OpWrite && n > 8 && endsOnWord(wr.RemoteAddr, n) {
			tail = 8
		}
		var two [2]unix.RemoteIovec
		nr += copy(l.riov[nr:], two[:splitTail(&two, wr.RemoteAddr, n, n, tail)])
		nl += k
		bytes += n
	}
	got, err := ep.callFar(wrs[0].Op, nl, nr)
	if err == nil && got != bytes {
		err = unix.EFAULT
	}
	return err
}
