package eager

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric/sim"
	"github.com/seed33544411/rma/flowctl"
)

// mapped joins two channels over a link that maps the peer's ring.
func mapped(t *testing.T, o Options) (a, b *side) { return pair(t, realLinks["shm"], o, o) }

func (s *side) short(t *testing.T, meta uint64, b string) {
	t.Helper()
	require.True(t, s.ch.SendShort(1, meta, []byte(b)))
}

func (s *side) wantShort(t *testing.T, meta uint64, msg string) {
	t.Helper()
	m, b, ok := s.ch.Short(1)
	require.True(t, ok)
	require.Equal(t, meta, m)
	require.Equal(t, msg, string(b))
	s.ch.TakeShort(len(b))
}

func (s *side) wantNone(t *testing.T) {
	t.Helper()
	require.False(t, s.ch.Waiting())
	_, _, ok := s.ch.Short(1)
	require.False(t, ok)
	_, ok, err := s.ch.Peek()
	require.NoError(t, err)
	require.False(t, ok)
}

// Small messages that follow each other share a block, whichever way they are received; the
// sender goes on to the next block without notice.
func TestSmallMessagesShareABlock(t *testing.T) {
	t.Parallel()
	a, b := mapped(t, Options{Blocks: 8, BlockSize: 256, Mode: ModeLap})
	a.short(t, 1, "one")
	a.short(t, 2, "the second")
	a.short(t, 3, "")
	require.EqualValues(t, 1, a.ch.Head())
	b.wantShort(t, 1, "one")
	buf := make([]byte, 16)
	h, ok, err := b.ch.Recv(buf)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, Head{Meta: 2, Len: 10, Kind: 1, HasMeta: true}, h)
	require.Equal(t, "the second", string(buf[:10]))
	b.drop(t)
	b.wantNone(t)
	a.short(t, 4, "four")
	require.EqualValues(t, 1, a.ch.Head(), "the reader has not left the block")
	require.True(t, b.ch.Waiting())
	b.wantShort(t, 4, "four")
	b.wantNone(t)

	res, err := a.ch.Send(Envelope{Kind: 9}, []byte("by a request"))
	require.NoError(t, err)
	require.Equal(t, Accepted, res)
	a.short(t, 5, "five")
	require.EqualValues(t, 3, a.ch.Head(), "nothing is appended to a block that is not the last")
	require.True(t, b.ch.Waiting())
	h, ok, err = b.ch.Peek()
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, Head{Len: 12, Kind: 9}, h)
	b.drop(t)
	b.wantShort(t, 5, "five")
	b.wantNone(t)
	for i := range uint64(100) { // across blocks and laps
		a.short(t, i, "12345678")
		b.wantShort(t, i, "12345678")
	}
}

// Blocks are as docs/wire.md says.
func TestSharedBlockGolden(t *testing.T) {
	t.Parallel()
	a, b := mapped(t, Options{Blocks: 8, BlockSize: 128, Mode: ModeLap})
	a.short(t, 0x11, "12345678")
	a.short(t, 0x22, "abc")
	require.Equal(t, []byte{
		0, 0, 0, 0, 0, 0, 0, 0, // no third message yet
		'a', 'b', 'c', 0, 0, 0, 0, 0, 0x22, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 1, 23, 1, 0,
		'1', '2', '3', '4', '5', '6', '7', '8', 0x11, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 1, 23, 1, 0,
	}, b.ch.in[ringStart+128-56:ringStart+128])
}

// An answer has a block for itself, and so has what cannot share one.
func TestMessagesThatDoNotShare(t *testing.T) {
	t.Parallel()
	a, b := mapped(t, Options{Blocks: 16, BlockSize: 4096, Mode: ModeLap})
	for i := range uint64(3) {
		b.short(t, i, "question")
		a.wantShort(t, i, "question")
		a.short(t, i, "answer")
		require.Equal(t, i+1, a.ch.Head())
		b.wantShort(t, i, "answer")
	}
	head := a.ch.Head()
	for i := range uint64(3) {
		a.short(t, i, string(make([]byte, packSize)))
		require.Equal(t, head+1+i, a.ch.Head())
		b.drop(t)
	}

	a, b = mapped(t, Options{Blocks: 4, BlockSize: 128, Control: 1, Every: 1, Mode: ModeLap})
	for i := range uint64(3) {
		a.short(t, i, "x")
		require.Equal(t, i+1, a.ch.Head(), "every block is returned at once")
		b.wantShort(t, i, "x")
		a.poll()
	}
}

// A ring takes many small messages that nobody receives.
func TestRingHoldsManySmallMessages(t *testing.T) {
	t.Parallel()
	a, b := mapped(t, Options{Blocks: 16, BlockSize: 1024, Mode: ModeLap})
	n := uint64(0)
	for a.ch.SendShort(1, n, []byte("12345678")) {
		n++
	}
	data, _, block := a.ch.Window()
	require.Equal(t, uint64(data/block*((1024-packLeast)/24+1)), n)
	for i := range n {
		b.wantShort(t, i, "12345678")
	}
	b.wantNone(t)
	require.True(t, a.ch.SendShort(1, n, nil))
}

// A sender that waits for the longest run is not kept waiting by a block that it has not left.
func TestSharedBlocksDoNotStarve(t *testing.T) {
	t.Parallel()
	o := Options{Blocks: 8, BlockSize: 128, Control: 1, Every: 4, Mode: ModeLap}
	a, b := mapped(t, o)
	long := make([]byte, a.ch.MaxPayload(flowctl.Data, true))
	for round := range uint64(50) {
		for i := range round % 7 {
			a.short(t, i, "a few bytes")
			b.wantShort(t, i, "a few bytes")
		}
		for {
			res, err := a.ch.Send(Envelope{Kind: 2, HasMeta: true}, long)
			require.NoError(t, err)
			if res == Accepted {
				break
			}
			require.NotEqual(t, NoCredit, res, "round %d: all has been received", round)
			a.poll()
		}
		b.drop(t)
		a.poll()
		_, err := a.ch.Progress(false)
		require.NoError(t, err)
	}
}

// What a hostile peer writes behind the first message of a block.
func TestHostileSharedBlocks(t *testing.T) {
	t.Parallel()
	const first, last, meta, more = flagFirst, flagLast, flagMeta, flagMore
	for name, c := range map[string]struct {
		t    trailer
		want string
	}{
		"lap from the past":   {makeTrailer(8, 1, first|last|meta, 0), "wrong lap"},
		"lap from the future": {makeTrailer(8, 1, first|last|meta, 2), "wrong lap"},
		"longer than is left": {makeTrailer(96, 1, first|last|meta, 1), "cannot share"},
		"without room behind": {makeTrailer(88, 1, first|last|meta|more, 1), "cannot share"},
		"several blocks":      {makeTrailer(200, 1, first, 1), "cannot share"},
		"about rings":         {makeTrailer(8, kindAsk, first|last|flagRing, 1), "cannot share"},
		"not first":           {makeTrailer(8, 1, last|meta, 1), "does not begin"},
		"a mark":              {makeTrailer(0, 0, 0, 1), "does not begin"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := Options{Blocks: 8, BlockSize: 128, Control: 1, Every: 4, Mode: ModeLap}
			_, b := pair(t, simLinks(sim.Options{}), o, o)
			b.poke(b.trailerAt(0), uint64(makeTrailer(8, 1, first|last|meta|more, 1)))
			b.poke(b.trailerAt(0)-24, uint64(c.t))
			b.wantShort(t, 0, string(make([]byte, 8)))
			require.True(t, b.ch.Waiting())
			_, _, ok := b.ch.Short(1)
			require.False(t, ok)
			_, _, err := b.ch.Peek()
			require.ErrorIs(t, err, ErrCorrupt)
			require.ErrorContains(t, err, c.want)
		})
	}
	for name, o := range map[string]Options{
		"every block returned": {Blocks: 8, BlockSize: 128, Control: 1, Every: 1, Mode: ModeLap},
		"write cursor":         {Blocks: 8, BlockSize: 128, Control: 1, Every: 4, Mode: ModeCursor},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, b := pair(t, simLinks(sim.Options{}), o, o)
			b.poke(b.trailerAt(0), uint64(makeTrailer(8, 1, first|last|meta|more, 1)))
			b.poke(cursorCell, 1)
			_, _, ok := b.ch.Short(1)
			require.False(t, ok)
			_, _, err := b.ch.Peek()
			require.ErrorContains(t, err, "cannot share")
		})
	}
}

// The messages of a block that were sent before the channel failed are received.
func TestDrainSharedBlock(t *testing.T) {
	t.Parallel()
	a, b := mapped(t, Options{Blocks: 8, BlockSize: 256, Mode: ModeLap})
	for i := range uint64(3) {
		a.short(t, i, "12345678")
	}
	b.wantShort(t, 0, "12345678")
	require.True(t, b.ch.Drain())
	for want := uint64(1); want < 3; want++ {
		var buf [8]byte
		h, ok, err := b.ch.Recv(buf[:])
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, want, h.Meta)
		require.Equal(t, uint64(0x3837363534333231), binary.LittleEndian.Uint64(buf[:]))
	}
	_, ok, err := b.ch.Peek()
	require.NoError(t, err)
	require.False(t, ok)
}
