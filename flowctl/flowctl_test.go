package flowctl

import (
	"errors"
	"math"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/testutil"
)

// One of each per peer and direction; growth must be worth it.
func TestSizes(t *testing.T) {
	testutil.Size(t, 40, unsafe.Sizeof(Sender{}))
	testutil.Size(t, 40, unsafe.Sizeof(Receiver{}))
	require.Equal(t, uintptr(12), unsafe.Sizeof(Geometry{}))
}

func TestGeometry(t *testing.T) {
	for n := uint32(2); n <= MaxBlocks; n *= 2 {
		g := DefaultGeometry(n)
		require.NoError(t, g.Validate(), "%d blocks", n)
		require.GreaterOrEqual(t, g.MaxRun(), 1)
		require.GreaterOrEqual(t, g.SignalEvery(), 1)
		require.LessOrEqual(t, g.SignalEvery(), int(g.Every))
	}
	for _, g := range []Geometry{
		{}, {Blocks: 1, Control: 1, Every: 1}, {Blocks: 3, Control: 1, Every: 1}, {Blocks: 4, Every: 1},
		{Blocks: 4, Control: 1}, {Blocks: 4, Control: 2, Every: 3}, {Blocks: 2 * MaxBlocks, Control: 1, Every: 1},
		{Blocks: 1 << 31, Control: 1, Every: 1}, {Blocks: 4, Control: math.MaxUint32, Every: 5},
	} {
		require.ErrorIs(t, g.Validate(), ErrGeometry, "%+v", g)
	}
	g := Geometry{Blocks: 8, Control: 1, Every: 4}
	require.Equal(t, 4, g.MaxRun())
	require.Equal(t, uint16(1), g.Lap(0))
	require.Equal(t, uint16(1), g.Lap(7))
	require.Equal(t, uint16(2), g.Lap(8))
	require.Equal(t, uint16(0), g.Lap(8*65535))
	require.Equal(t, uint16(1), g.Lap(8*65536))
	require.Equal(t, uint32(5), g.Slot(13))
	// The lap goes on where the position wraps.
	require.Equal(t, g.Lap(0), g.Lap(math.MaxUint64)+1)
}

func TestReserveLeavesControlFree(t *testing.T) {
	for _, start := range []uint64{0, math.MaxUint64 - 3} {
		g := Geometry{Blocks: 8, Control: 2, Every: 4}
		s := SenderAt(g, start)
		_, ok := s.Reserve(0, Control)
		require.False(t, ok)
		_, ok = s.Reserve(-1, Control)
		require.False(t, ok)
		_, ok = s.Reserve(math.MaxInt, Control)
		require.False(t, ok)
		pos, ok := s.Reserve(4, Data)
		require.True(t, ok)
		require.Equal(t, start, pos)
		_, ok = s.Reserve(3, Data)
		require.False(t, ok)
		require.Equal(t, 2, s.Free(Data))
		pos, ok = s.Reserve(2, Data)
		require.True(t, ok)
		require.Equal(t, start+4, pos)
		_, ok = s.Reserve(1, Data)
		require.False(t, ok, "the rest is for control")
		for range 2 {
			_, ok = s.Reserve(1, Control)
			require.True(t, ok)
		}
		_, ok = s.Reserve(1, Control)
		require.False(t, ok)

		// Credit alone is not enough: the staging copies are still in use.
		require.NoError(t, s.Apply((start+4)<<1))
		require.Zero(t, s.Free(Control))
		require.NoError(t, s.Complete(start+3))
		require.Equal(t, 3, s.Free(Control))
		require.Equal(t, 1, s.Free(Data))
		require.NoError(t, s.Complete(start+8))
		require.Equal(t, 4, s.Free(Control))
	}
}

func TestHostileCursors(t *testing.T) {
	g := Geometry{Blocks: 8, Control: 1, Every: 4}
	for _, start := range []uint64{0, 1000, 1<<63 - 2, math.MaxUint64 - 3} {
		s := SenderAt(g, start)
		s.Reserve(5, Data)
		require.NoError(t, s.Apply((start+2)<<1|1))
		require.True(t, s.PeerSleeps())
		before := s
		for _, c := range []struct {
			cursor uint64
			want   error
		}{
			{start + 1, ErrCursorBack}, {start - 1, ErrCursorBack}, {start + 2 - 1<<61, ErrCursorBack},
			{start + 6, ErrCursorBeyond}, {start + 1<<61, ErrCursorBeyond},
		} {
			err := s.Apply(c.cursor << 1)
			require.ErrorIs(t, err, c.want)
			var ce *CursorError
			require.True(t, errors.As(err, &ce))
			require.Equal(t, (start+2)&wordMask, ce.Low)
			require.Equal(t, (start+5)&wordMask, ce.High)
			require.Contains(t, err.Error(), "credit: ")
			require.Equal(t, before, s, "a refused word changes nothing")
		}
		require.ErrorIs(t, s.Complete(start+6), ErrCursorBeyond)
		require.ErrorIs(t, s.Complete(start-1), ErrCursorBack)
		require.Equal(t, before, s)
		require.NoError(t, s.Apply((start+5)<<1))
		require.False(t, s.PeerSleeps())

		r := ReceiverAt(g, start)
		n, err := r.Arrived(start + 5)
		require.NoError(t, err)
		require.Equal(t, 5, n)
		r.Consume(3)
		saved := r
		for _, c := range []struct {
			cursor uint64
			want   error
		}{{start + 4, ErrCursorBack}, {start - 1, ErrCursorBack}, {start + 9, ErrCursorBeyond}, {start + 5 + 1<<62, ErrCursorBeyond}} {
			_, err := r.Arrived(c.cursor)
			require.ErrorIs(t, err, c.want)
			require.Equal(t, saved, r)
		}
		n, err = r.Arrived(start + 8)
		require.NoError(t, err)
		require.Equal(t, 5, n)
	}
}

func TestWhenCreditIsDue(t *testing.T) {
	r := NewReceiver(Geometry{Blocks: 16, Control: 2, Every: 4})
	require.False(t, r.Due(true))
	r.Consume(1)
	require.False(t, r.Due(true))
	r.Consume(1)
	require.False(t, r.Due(false))
	require.True(t, r.Due(true), "half is enough when something goes there anyway")
	r.Consume(2)
	require.True(t, r.Due(false))
	require.Equal(t, 4, r.Owed())
	require.Equal(t, uint64(8), r.Word())
	require.False(t, r.Due(true))
	require.Zero(t, r.Owed())
	r.SetSleep(true)
	require.True(t, r.Due(false), "a changed sleep bit is news")
	require.Equal(t, uint64(9), r.Word())
	require.False(t, r.Due(true))
	require.True(t, r.sleep)
	r.SetSleep(false)
	require.True(t, r.Due(false))
	require.Equal(t, uint64(8), r.Word())
}

func TestHotPathAllocatesNothing(t *testing.T) {
	g := DefaultGeometry(16)
	s, r := NewSender(g), NewReceiver(g)
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		pos, ok := s.Reserve(2, Data)
		if !ok {
			t.Fatal("full")
		}
		if _, err := r.Arrived(pos + 2); err != nil {
			t.Fatal(err)
		}
		r.Consume(2)
		if r.Due(false) {
			if s.Apply(r.Word()) != nil || s.Complete(s.Head()) != nil {
				t.Fatal("refused")
			}
		}
	}))
}

// FuzzRing drives both ends with a script and, in between, with hostile words.
// What must hold: the free count stays in bounds, honest words are accepted
// whatever hostile ones came before, accepted words never free what is unread.
func FuzzRing(f *testing.F) {
	f.Add(uint64(0), uint8(3), uint8(1), uint8(2), []byte{0, 1, 2, 3, 4, 5, 6, 7, 40, 80, 120})
	f.Add(uint64(math.MaxUint64-2), uint8(1), uint8(0), uint8(0), []byte{8, 2, 5, 3, 6, 255, 254, 7, 15})
	f.Fuzz(func(t *testing.T, start uint64, logN, ctrl, every uint8, script []byte) {
		g := Geometry{Blocks: 1 << (1 + logN%6), Control: uint32(ctrl), Every: uint32(every)}
		if g.Validate() != nil {
			return
		}
		s, r := SenderAt(g, start), ReceiverAt(g, start)
		word := start << 1
		for i, b := range script {
			arg := int(b >> 3)
			switch b & 7 {
			case 0, 1:
				before, head := s.Free(Class(b&1)), s.Head()
				pos, ok := s.Reserve(arg, Class(b&1))
				if ok != (arg > 0 && arg <= before) {
					t.Fatalf("reserve %d of %d free: %v", arg, before, ok)
				}
				if ok && pos != head {
					t.Fatalf("reserve gave %d, head was %d", pos, head)
				}
			case 2: // everything arrives
				if _, err := r.Arrived(s.Head()); err != nil {
					t.Fatal(err)
				}
			case 3:
				r.Consume(min(arg, int(r.arrived-r.next)))
			case 4:
				if r.Due(arg&1 != 0) {
					word = r.Word()
				}
			case 5:
				r.SetSleep(arg&1 != 0)
				word = r.Word()
			case 6:
				if err := s.Apply(word); err != nil {
					t.Fatalf("honest word refused: %v", err)
				}
				if s.PeerSleeps() != (word&1 != 0) {
					t.Fatal("sleep bit lost")
				}
				if err := s.Complete(s.Head() - min(uint64(arg), s.Head()-s.Done())); err != nil {
					t.Fatal(err)
				}
			case 7: // hostile words on copies, and what they may do at most
				evil := start + uint64(i*int(b)) - 64
				if arg&1 != 0 {
					evil *= 0x9e3779b97f4a7c15
				}
				es, er := s, r
				if es.Apply(evil) == nil && (es.Free(Control) < 0 || es.Free(Control) > int(g.Blocks)) {
					t.Fatalf("%d blocks free of %d", es.Free(Control), g.Blocks)
				}
				if es.Complete(evil) == nil && (es.Free(Control) < 0 || es.Free(Control) > int(g.Blocks)) {
					t.Fatalf("%d blocks free of %d", es.Free(Control), g.Blocks)
				}
				if n, err := er.Arrived(evil); err == nil && (n < 0 || n > int(g.Blocks)) {
					t.Fatalf("%d blocks arrived of %d", n, g.Blocks)
				}
			}
			if f := s.Free(Control); f < 0 || f > int(g.Blocks) || s.Head()-r.Next() > uint64(g.Blocks) {
				t.Fatalf("step %d: %d free of %d, %d unread", i, f, g.Blocks, s.Head()-r.Next())
			}
		}
	})
}

func BenchmarkReserveConsume(b *testing.B) {
	g := DefaultGeometry(64)
	s, r := NewSender(g), NewReceiver(g)
	for b.Loop() {
		if _, ok := s.Reserve(1, Data); !ok {
			b.Fatal("full")
		}
		r.Consume(1)
		if r.Due(false) {
			_ = s.Apply(r.Word())
			_ = s.Complete(s.Head())
		}
	}
}
