package eager

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/sim"
	"github.com/seed33544411/rma/flowctl"
	"github.com/seed33544411/rma/internal/testutil"
)

// poke lets the peer of x write a word into x's region, as a hostile one could.
func (s *side) poke(off int, w uint64) {
	binary.LittleEndian.PutUint64(s.ch.in[off:], w)
}

// trailerAt is where the trailer of block pos of the incoming ring lies.
func (s *side) trailerAt(pos uint64) int {
	return ringStart + s.ch.rxRing.offset(pos) + s.ch.rxRing.room()
}

func TestHostileBlocks(t *testing.T) {
	t.Parallel()
	const first, last, meta, more = flagFirst, flagLast, flagMeta, flagMore
	for name, c := range map[string]struct {
		t    trailer
		want string
	}{
		"lap from the future":      {makeTrailer(8, 0, first|last, 2), "wrong lap"},
		"lap from the past":        {makeTrailer(8, 0, first|last, 0xffff), "wrong lap"},
		"unknown flag":             {makeTrailer(8, 0, first|last|32, 1), "unknown flags"},
		"all flags":                {makeTrailer(8, 0, 255, 1), "unknown flags"},
		"no first flag":            {makeTrailer(8, 0, last, 1), "does not begin"},
		"inner block":              {makeTrailer(8, 0, 0, 1), "does not begin"},
		"meta without first":       {makeTrailer(8, 0, meta, 1), "does not begin"},
		"short but not last":       {makeTrailer(8, 0, first, 1), "last flag"},
		"long but last":            {makeTrailer(200, 0, first|last, 1), "last flag"},
		"longer than the ring":     {makeTrailer(1<<20, 0, first, 1), "length beyond"},
		"length at the limit":      {makeTrailer(0xffffffff, 0, first, 1), "length beyond"},
		"one block above the most": {makeTrailer(4*128-7, 0, first, 1), "length beyond"},
		"meta pushes it above":     {makeTrailer(4*128-8, 0, first|meta, 1), "length beyond"},
		"meta makes two of one":    {makeTrailer(120, 0, first|last|meta, 1), "last flag"},
		"no room for another":      {makeTrailer(105, 0, first|last|meta|more, 1), "cannot share"},
		"shares several blocks":    {makeTrailer(200, 0, first|more, 1), "cannot share"},
		"shares, about rings":      {makeTrailer(8, kindAsk, first|last|flagRing|more, 1), "cannot share"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := Options{Blocks: 8, BlockSize: 128}
			a, b := pair(t, simLinks(sim.Options{}), o, o)
			// A second channel on the same link.
			e1, e2 := join(t, a.link, b.link, 0)
			c1, err := Open(a.link, e1, Options{IDTag: 9})
			require.NoError(t, err)
			c2, err := Open(b.link, e2, Options{IDTag: 9})
			require.NoError(t, err)
			require.NoError(t, c1.Connect(c2.Setup()))
			require.NoError(t, c2.Connect(c1.Setup()))
			defer func() {
				require.NoError(t, errors.Join(e1.Close(), e2.Close(), c1.Close(), c2.Close()))
			}()

			b.poke(b.trailerAt(0), uint64(c.t))
			_, _, ok := b.ch.Short(c.t.kind())
			require.False(t, ok)
			_, ok, err = b.ch.Peek()
			require.False(t, ok)
			require.ErrorIs(t, err, ErrCorrupt)
			require.ErrorContains(t, err, c.want)
			var be *BlockError
			require.True(t, errors.As(err, &be))

			// It stays so, whatever the ring says later, and nothing goes out.
			b.poke(b.trailerAt(0), uint64(makeTrailer(0, 0, first|last, 1)))
			_, _, err = b.ch.Recv(nil)
			require.ErrorIs(t, err, ErrCorrupt)
			_, err = b.ch.Send(Envelope{}, []byte("x"))
			require.ErrorIs(t, err, ErrCorrupt)
			_, err = b.ch.Progress(true)
			require.ErrorIs(t, err, ErrCorrupt)
			_, err = b.ch.Sleep(true)
			require.ErrorIs(t, err, ErrCorrupt)
			require.ErrorIs(t, b.ch.Err(), ErrCorrupt)

			// The link and its other channel live.
			require.NoError(t, b.ep.Err())
			res, err := c1.Send(Envelope{Kind: 3}, []byte("still here"))
			require.NoError(t, err)
			require.Equal(t, Accepted, res)
			buf := make([]byte, 10)
			h, ok, err := c2.Recv(buf)
			require.NoError(t, err)
			require.True(t, ok)
			require.Equal(t, 10, h.Len)
			require.Equal(t, "still here", string(buf))
		})
	}
}

// Payload stands where the blocks behind the first would have their trailers. It
// may look like any trailer, of any lap: no message must come of it, in this lap
// or in the next, when those blocks are polled.
func TestPayloadIsNoTrailer(t *testing.T) {
	t.Parallel()
	for _, every := range []int{1, 3} {
		o := Options{Blocks: 8, BlockSize: 128, Control: 1, Every: every, Mode: ModeLap}
		a, b := pair(t, simLinks(sim.Options{}), o, o)
		buf := make([]byte, 1024)
		for round := range 200 {
			n := round * 37 % (a.ch.MaxPayload(flowctl.Data, false) + 1)
			lap := a.ch.txRing.Lap(a.ch.tx.Head()) + uint16(round%4) - 1
			p := buf[:0]
			for len(p) < n {
				p = binary.LittleEndian.AppendUint64(p, uint64(makeTrailer(8, 0, flagFirst|flagLast, lap)))
			}
			p = p[:n]
			for {
				res, err := a.ch.Send(Envelope{Kind: uint8(round)}, p)
				require.NoError(t, err)
				if res == Accepted {
					break
				}
				a.poll()
				_, err = b.ch.Progress(true)
				require.NoError(t, err)
			}
			got := make([]byte, n)
			h, ok, err := b.ch.Recv(got)
			require.NoError(t, err)
			require.True(t, ok)
			require.Equal(t, uint8(round), h.Kind)
			require.Equal(t, p, got)
			_, ok, err = b.ch.Peek()
			require.NoError(t, err)
			require.False(t, ok, "round %d: a message that nobody sent", round)
			a.poll()
		}
	}
}

func TestHostileCells(t *testing.T) {
	t.Parallel()
	o := Options{Blocks: 8, BlockSize: 128, Mode: ModeCursor}
	for name, c := range map[string]struct {
		cell int
		word uint64
		want error
	}{
		"credit for what was not sent": {creditCell, 3 << 1, flowctl.ErrCursorBeyond},
		"credit far beyond":            {creditCell, 1 << 62, flowctl.ErrCursorBeyond},
		"credit moved back":            {creditCell, 0, flowctl.ErrCursorBack},
		"credit negative":              {creditCell, ^uint64(1), flowctl.ErrCursorBack},
		"written beyond the ring":      {cursorCell, 11, flowctl.ErrCursorBeyond},
		"written far beyond":           {cursorCell, 1 << 63, flowctl.ErrCursorBeyond},
		"written backwards":            {cursorCell, 1, flowctl.ErrCursorBack},
		"written what is not there":    {cursorCell, 4, ErrCorrupt},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, b := pair(t, simLinks(sim.Options{}), o, o)
			// Two messages each way; a knows of one consumed at b.
			for range 2 {
				for _, x := range []*side{a, b} {
					res, err := x.ch.Send(Envelope{}, []byte("12345678"))
					require.NoError(t, err)
					require.Equal(t, Accepted, res)
				}
			}
			b.drop(t)
			_, err := b.ch.Progress(true)
			require.NoError(t, err)
			a.drop(t)
			a.drop(t)
			_, err = a.ch.Progress(false)
			require.NoError(t, err)
			require.Equal(t, uint64(1), a.ch.word>>1)

			a.poke(c.cell, c.word)
			_, ok, err := a.ch.Peek()
			require.False(t, ok)
			if err == nil {
				_, err = a.ch.Progress(false)
			}
			require.ErrorIs(t, err, c.want)
			require.ErrorIs(t, a.ch.Err(), c.want)
			require.NoError(t, b.ch.Err())
		})
	}
}

// A cursor in the middle of a message is a lie about where messages end.
func TestCursorInsideMessage(t *testing.T) {
	t.Parallel()
	o := Options{Blocks: 8, BlockSize: 128, Mode: ModeCursor}
	_, b := pair(t, simLinks(sim.Options{}), o, o)
	b.poke(b.trailerAt(0), uint64(makeTrailer(300, 0, flagFirst, 1)))
	b.poke(cursorCell, 2)
	_, _, err := b.ch.Peek()
	require.ErrorIs(t, err, ErrCorrupt)
	require.ErrorContains(t, err, "announced")
}

// FuzzRingMemory feeds a receiver with arbitrary memory: cells, ring, again
// and again. It must neither panic nor hang nor write to the ring, and end in
// a typed error or go on.
func FuzzRingMemory(f *testing.F) {
	lap := binary.LittleEndian.AppendUint64(make([]byte, 56), uint64(makeTrailer(8, 1, flagFirst|flagLast, 1)))
	f.Add(false, lap, uint64(0), uint64(0))
	f.Add(true, lap, uint64(1), uint64(2))
	for _, n := range []uint32{0, 8, 48, 49, 1 << 31} { // a message that Short takes, or a lie about its length
		f.Add(false, binary.LittleEndian.AppendUint64(make([]byte, 56), uint64(makeTrailer(n, 1, flagFirst|flagLast|flagMeta, 1))), uint64(0), uint64(0))
	}
	two := binary.LittleEndian.AppendUint64(make([]byte, 56), uint64(makeTrailer(60, 1, flagFirst, 1)))
	two = binary.LittleEndian.AppendUint64(append(two, make([]byte, 56)...), uint64(makeTrailer(4, 1, flagLast, 1)))
	f.Add(false, two, uint64(0), uint64(1))
	f.Add(true, two, uint64(2), uint64(0))
	for _, second := range []trailer{0, makeTrailer(4, 1, flagFirst|flagLast|flagMeta, 1), makeTrailer(40, 1, flagFirst|flagLast|flagMeta|flagMore, 1)} {
		shared := binary.LittleEndian.AppendUint64(make([]byte, 32), uint64(second))
		shared = binary.LittleEndian.AppendUint64(append(shared, make([]byte, 16)...), uint64(makeTrailer(8, 1, flagFirst|flagLast|flagMeta|flagMore, 1)))
		f.Add(false, append(shared, 1), uint64(0), uint64(0))
		f.Add(false, append(append(shared, lap...), 1), uint64(0), uint64(0))
	}
	f.Fuzz(func(t *testing.T, cursor bool, mem []byte, written, credit uint64) {
		// Messages share blocks if Every is 2.
		o := Options{Blocks: 4, BlockSize: 64, Mode: ModeLap, Control: 1, Every: 1 + len(mem)%2}
		if cursor {
			o.Mode = ModeCursor
		}
		a, b := pair(t, simLinks(sim.Options{}), o, o)
		buf := make([]byte, 4*64)
		for pos := 0; pos < len(mem); {
			ring := b.ch.in[ringStart:]
			pos += copy(ring, mem[pos:])
			b.poke(cursorCell, written)
			b.poke(creditCell, credit)
			before := append([]byte(nil), b.ch.in...)
			for n := 0; ; n++ {
				meta, msg, short := b.ch.Short(1)
				h, ok, err := b.ch.Recv(buf)
				if short {
					require.NoError(t, err)
					require.Equal(t, Head{Meta: meta, Len: len(msg), Kind: 1, HasMeta: true}, h)
					require.Equal(t, buf[:h.Len], msg)
				}
				if err == nil {
					_, err = b.ch.Progress(false)
				}
				if err != nil {
					var ce *flowctl.CursorError
					if !errors.Is(err, ErrCorrupt) && !errors.As(err, &ce) {
						t.Fatalf("untyped error: %v", err)
					}
					if b.ep.Err() != nil {
						t.Fatalf("took the endpoint down: %v", b.ep.Err())
					}
					break
				}
				if !ok {
					break
				}
				if h.Len > 4*56 || n > 1<<17 {
					t.Fatalf("message %d of %d bytes from 4 blocks", n, h.Len)
				}
			}
			if !cursor { // marks are its to write, and nothing else
				for pos := range uint64(4) {
					at := b.trailerAt(pos)
					copy(before[at:at+8], b.ch.in[at:])
				}
			}
			require.Equal(t, before, b.ch.in, "the receiver wrote to its ring")
			written += 3
		}
		_ = a
	})
}

// The peer's region is written inside its bounds only: the key says how far,
// and what the messages do not cover stays as it was.
func TestWritesStayInTheirBlocks(t *testing.T) {
	t.Parallel()
	for _, mode := range []Mode{ModeLap, ModeCursor} {
		o := Options{Blocks: 4, BlockSize: 128, Mode: mode, Control: 1, Every: 1}
		a, b := pair(t, simLinks(sim.Options{}), o, o)
		in := b.ch.in
		for i := range in[ringStart:] {
			in[ringStart+i] = 0x5a
		}
		for pos := range uint64(4) {
			b.poke(b.trailerAt(pos), 0)
		}
		res, err := a.ch.Send(Envelope{}, testutil.Payload(21, 1, 0))
		require.NoError(t, err)
		require.Equal(t, Accepted, res)
		end := ringStart + 128
		require.NoError(t, testutil.Verify(in[end-8-24:end-8-3], 1, 0))
		require.Equal(t, []byte{0, 0, 0}, in[end-8-3:end-8], "padding is zero, not what was there")
		for i := ringStart; i < end-8-24; i++ {
			require.Equal(t, byte(0x5a), in[i], "byte %d", i)
		}
		for i := end; i < end+120; i++ {
			require.Equal(t, byte(0x5a), in[i], "byte %d", i)
		}
		h, ok, err := b.ch.Peek()
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, 21, h.Len)
	}
}

// A link's refusal ends the channel with the link's reason.
func TestLinkFailures(t *testing.T) {
	t.Parallel()
	a, b := pair(t, simLinks(sim.Options{}), Options{}, Options{})
	a.link.(*sim.Link).FailAt(1, fabric.StatusRemoteAccess)
	_, err := a.ch.Send(Envelope{}, []byte("x"))
	require.NoError(t, err)
	a.poll()
	require.ErrorIs(t, a.ch.Err(), fabric.ErrRemoteAccess)
	_, err = a.ch.Send(Envelope{}, []byte("x"))
	require.ErrorIs(t, err, fabric.ErrRemoteAccess)
	require.NoError(t, b.ch.Err())

	c, d := pair(t, simLinks(sim.Options{}), Options{}, Options{})
	require.NoError(t, c.ep.Close())
	require.True(t, d.ch.OnCompletion(&fabric.Completion{Op: fabric.OpDown, Status: fabric.StatusPeerGone}))
	require.ErrorIs(t, d.ch.Err(), fabric.ErrPeerGone)
	_, err = c.ch.Send(Envelope{}, []byte("x"))
	require.ErrorIs(t, err, fabric.ErrDown)
	require.False(t, c.ch.OnCompletion(&fabric.Completion{ID: 5 << 48, Op: fabric.OpWrite}), "another tag is not ours")
	require.False(t, c.ch.OnCompletion(&fabric.Completion{Op: fabric.OpNotify, Imm: 99}), "nor is another imm")
}
