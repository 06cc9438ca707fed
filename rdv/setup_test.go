package rdv

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/eager"
	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/sim"
	"github.com/seed33544411/rma/flowctl"
)

func goodSetup() Setup {
	return Setup{
		Transfers: 0x102, Adverts: 0x203, Messages: 0x104, Regions: 0x205, Chunks: 6, Rails: true,
		Ring: eager.Setup{
			Mode: eager.ModeLap, Geometry: flowctl.Geometry{Blocks: 16, Control: 2, Every: 8}, BlockSize: 192,
			Region: fabric.RemoteKey{Addr: 0x1000, Len: 256 + 16*192, RKey: 7},
		},
	}
}

func TestSetupGolden(t *testing.T) {
	t.Parallel()
	s := goodSetup()
	b := s.Append(nil)
	require.Len(t, b, SetupSize)
	require.Equal(t, []byte{9, 1, 2, 1, 3, 2, 4, 1, 5, 2, 6, 0}, b[:12])
	require.Equal(t, s.Ring.Append(nil), b[12:])
	got, rest, err := ParseSetup(append(b, 9))
	require.NoError(t, err)
	require.Equal(t, s, got)
	require.Equal(t, []byte{9}, rest)
	for n := range SetupSize {
		_, _, err := ParseSetup(b[:n])
		require.ErrorIs(t, err, ErrSetup, "prefix of %d bytes", n)
	}
}

func TestSetupRefusals(t *testing.T) {
	t.Parallel()
	for what, spoil := range map[string]func(*Setup){
		"no transfers":     func(s *Setup) { s.Transfers = 0 },
		"many transfers":   func(s *Setup) { s.Transfers = maxSlots + 1 },
		"no adverts":       func(s *Setup) { s.Adverts = 0 },
		"many adverts":     func(s *Setup) { s.Adverts = 65535 },
		"no messages":      func(s *Setup) { s.Messages = 0 },
		"many messages":    func(s *Setup) { s.Messages = maxBatch + 1 },
		"no regions":       func(s *Setup) { s.Regions = 0 },
		"many regions":     func(s *Setup) { s.Regions = maxBatch + 1 },
		"no chunks":        func(s *Setup) { s.Chunks = 0 },
		"many chunks":      func(s *Setup) { s.Chunks = maxChunks + 1 },
		"a ring of nobody": func(s *Setup) { s.Ring.Region.Addr = 0 },
	} {
		s := goodSetup()
		spoil(&s)
		_, _, err := ParseSetup(s.Append(nil))
		require.ErrorIs(t, err, ErrSetup, what)
	}
	b := goodSetup()
	for i, v := range map[int]byte{0: 8, 1: 2} {
		raw := b.Append(nil)
		raw[i] = v
		_, _, err := ParseSetup(raw)
		require.ErrorIs(t, err, ErrSetup)
	}
}

func TestOptionsRefusals(t *testing.T) {
	t.Parallel()
	for _, o := range []Options{
		{Transfers: -1}, {Transfers: maxSlots + 1}, {Adverts: -1}, {Messages: -1}, {Regions: maxBatch + 1}, {Chunk: -1},
		{Chunks: maxChunks + 1}, {FirstChunk: -1}, {CopyRate: -1}, {LinkRate: -1}, {Staging: 1<<30 + 1},
	} {
		_, err := o.effective(sim.CapsLike("sim"))
		require.ErrorIs(t, err, ErrOptions, "%+v", o)
	}
	_, err := Options{}.effective(fabric.Caps{})
	require.ErrorIs(t, err, ErrOptions)
}

// Before Connect nothing can be sent; connecting twice is a mistake.
func TestLifeCycle(t *testing.T) {
	t.Parallel()
	h := wait()
	a, b := pair(t, simLinks(sim.Options{}), h, wait(), Options{}, Options{})
	require.ErrorIs(t, a.ch.Connect(b.ch.Setup()), ErrConnected)
	fresh, err := Open(a.link, a.ep, h, Options{})
	require.NoError(t, err)
	_, _, err = fresh.Send(nil, 0, 0)
	require.ErrorIs(t, err, ErrNotConnected)
	_, err = fresh.Progress()
	require.NoError(t, err)
	require.ErrorIs(t, fresh.Connect(Setup{}), ErrSetup)
	require.NoError(t, fresh.Close())
	require.NoError(t, fresh.Close())
	_, _, err = fresh.Send(nil, 0, 0)
	require.ErrorIs(t, err, ErrClosed)
	require.ErrorIs(t, fresh.Connect(b.ch.Setup()), ErrClosed)
	require.False(t, a.ch.OnCompletion(&fabric.Completion{ID: 77 << 48, Op: fabric.OpRead}), "another tag is not ours")
	require.Equal(t, "busy", Busy.String())
	require.Equal(t, "accepted", Accepted.String())
	require.Equal(t, "result(9)", Result(9).String())
	require.Equal(t, "kind(99)", Kind(99).String())
}

// What a channel costs for each slot; growth needs a reason.
func TestSizes(t *testing.T) {
	t.Parallel()
	if unsafe.Sizeof(uintptr(0)) != 8 {
		t.Skip("the numbers are for 64 bits")
	}
	require.Equal(t, uintptr(16), unsafe.Sizeof(outgoing{}))
	require.Equal(t, uintptr(16), unsafe.Sizeof(myAdvert{}))
	require.Equal(t, uintptr(48), unsafe.Sizeof(theirAdvert{}))
	require.Equal(t, uintptr(24), unsafe.Sizeof(message{}))
	require.Equal(t, uintptr(288), unsafe.Sizeof(incoming{}))
	require.Equal(t, uintptr(152), unsafe.Sizeof(writeJob{}))
	require.Equal(t, uintptr(144), unsafe.Sizeof(pipe{}))
}
