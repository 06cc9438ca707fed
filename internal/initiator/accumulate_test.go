package initiator

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/sim"
	"github.com/seed33544411/rma/internal/onesided"
	"github.com/seed33544411/rma/internal/testutil"
)

// addTo adds the elements of src to those at the start of the other side's region.
func addTo(s *side, src []byte) *Op {
	o := s.op(Accumulate, 0)
	o.Combine(src, onesided.Request{Op: onesided.Sum, Type: onesided.Uint64, Ref: s.other.region.Key().Ref, Addr: o.remote})
	return o
}

// An operation ends once if the first sign of a lost connection is its own request, which
// the link has flushed.
func TestFlushedRequestEndsItsOperationOnce(t *testing.T) {
	a, _ := pair(t, sim.Options{})
	one := binary.NativeEndian.AppendUint64(nil, 1)
	_, err := a.do(t, addTo(a, one)) // there are slots now
	require.NoError(t, err)
	o := addTo(a, one)
	other := a.op(FetchAdd, 64) // posted behind it
	a.Prog.Do(func() {
		for _, x := range []*Op{o, other} {
			x.Start()
			a.Queue.post()
		}
		require.EqualValues(t, 2, o.pending, "the write and its acknowledgement")
		a.Engine.Complete(&fabric.Completion{ID: uint64(o.id) | 1<<slotShift, Op: fabric.OpWrite, Status: fabric.StatusFlushed})
		require.True(t, o.Done())
		require.False(t, other.Done())
		require.EqualValues(t, 1, a.Queue.flushes.open)
		a.Engine.Complete(&fabric.Completion{ID: uint64(other.id), Op: fabric.OpFetchAdd, Status: fabric.StatusFlushed})
		require.True(t, other.Done())
		require.Zero(t, a.Queue.flushes.open)
	})
	require.ErrorIs(t, o.Err, fabric.ErrFlushed)
	require.ErrorIs(t, other.Err, fabric.ErrFlushed)
	a.Prog.Do(func() { require.EqualValues(t, 2, a.Queue.Counts().Failed) })
}

// An accumulate fails that gets no slots; the next asks for them again. A put behind it goes on.
func TestSlotsAreFetchedAgain(t *testing.T) {
	a, b := pair(t, sim.Options{})
	one := binary.NativeEndian.AppendUint64(nil, 1)
	a.short <- fabric.ErrResources
	o, put := addTo(a, one), a.op(Put, 64)
	a.Queue.Post(o)
	_, err := a.do(t, put)
	require.NoError(t, err)
	require.ErrorIs(t, o.Err, fabric.ErrResources)
	for range 2 {
		_, err = a.do(t, addTo(a, one))
		require.NoError(t, err)
	}
	require.EqualValues(t, 2, testutil.Load64(b.region.Bytes()))
}

// The lost result of an atomic fails that operation alone, and a signal needs none.
func TestLostResultsFailAlone(t *testing.T) {
	a, _ := pair(t, sim.Options{})
	add, signal := a.op(FetchAdd, 64), a.op(PutSignal, 0)
	signal.Flag(signal.remote+128, signal.rkey, true, 1)
	a.Prog.Do(func() {
		for _, o := range []*Op{add, signal} {
			o.Start()
			a.Queue.post()
			for o.pending > 0 {
				a.Engine.Complete(&fabric.Completion{ID: uint64(o.id), Op: fabric.OpFetchAdd, Status: fabric.StatusLostResult})
			}
			require.True(t, o.Done())
		}
		require.NoError(t, a.Queue.down)
	})
	require.ErrorIs(t, add.Err, fabric.ErrLostResult)
	require.NoError(t, signal.Err)
}

// A hostile peer's notifications and slots change nothing that its keys do not
// cover, and break nothing.
func TestHostileAccumulates(t *testing.T) {
	a, b := pair(t, sim.Options{})
	one := binary.NativeEndian.AppendUint64(nil, 1)
	good := func() {
		_, err := a.do(t, addTo(a, one))
		require.NoError(t, err)
	}
	send := func(imm uint32) { // past all checks
		a.Prog.Do(func() { a.Queue.control.push(notice{imm: imm}) })
		testutil.Eventually(t, testutil.Limit, func() bool {
			a.Prog.Progress()
			left := 0
			a.Prog.Do(func() { left = len(a.Queue.control.list) + a.Queue.inflight })
			return left == 0
		}, "the notification to arrive")
	}
	served := uint64(0)
	ask := func(slot int) { // a request that is not in time with its acknowledgement
		send(note(noteRequest, slot, 0))
		served++
		testutil.Eventually(t, testutil.Limit, func() (all bool) {
			b.Prog.Do(func() { all = b.Queue.Counts().Served >= served })
			return all
		}, "the request to be served")
	}
	settle := func() { // no acknowledgement of what was asked for past the checks is on its way
		testutil.Eventually(t, testutil.Limit, func() bool {
			left := 0
			b.Prog.Do(func() { left = len(b.Queue.control.list) + b.Queue.inflight })
			for a.Prog.Progress() {
			}
			return left == 0
		}, "acknowledgements to arrive")
	}
	send(note(noteRequest, 0, 0)) // no slots yet
	send(note(noteAck, 3, 0))
	good()
	served++
	for slot := range 16 {
		send(note(noteAck, slot, onesided.Status(slot)))
		if slot < onesided.Slots {
			ask(slot)
		} else {
			send(note(noteRequest, slot, 0))
		}
	}
	send(note(noteOpen, 0, 0))
	send(note(15, 15, 255))
	// Rubbish in a slot, and an honest header with a dishonest length.
	for i := range 200 {
		a.Prog.Do(func() { testutil.Fill(a.Queue.requests.mine.Bytes()[:onesided.SlotSize], uint64(i), 0) })
		_, err := a.do(t, writeSlot(a, onesided.HeaderSize+i))
		require.NoError(t, err)
		ask(0)
	}
	settle()
	good()
	_, err := a.do(t, a.op(FetchAdd, 0))
	require.NoError(t, err)
	require.EqualValues(t, 3, testutil.Load64(b.region.Bytes()), "two good ones, and slot 0 once more")
	_, err = a.do(t, New(&a.Queue, Flush))
	require.NoError(t, err)

	// More requests than slots, none of them acknowledged yet.
	b.Prog.Do(func() {
		for range 2 * maxNotes {
			b.Queue.serving.serve(noteRequest, 1)
		}
		require.ErrorIs(t, b.Queue.down, ErrMisbehaves)
	})
	testutil.Eventually(t, testutil.Limit, func() bool {
		_, err := a.do(t, addTo(a, one))
		return err != nil
	}, "an error")
}

// writeSlot puts n bytes of this side's slot 0 into the other's.
func writeSlot(s *side, n int) *Op {
	r := &s.Queue.requests
	o := New(&s.Queue, Put)
	o.Local(fabric.NewSGE(r.mine.Bytes()[:n], r.mine.LKey()))
	o.Remote(r.there.Addr, r.there.RKey)
	return o
}
