package eager

import (
	"encoding/binary"
	"math"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/sim"
	"github.com/seed33544411/rma/flowctl"
	"github.com/seed33544411/rma/internal/testutil"
)

func goodSetup() Setup {
	return Setup{
		Mode: ModeCursor, Geometry: flowctl.Geometry{Blocks: 16, Control: 2, Every: 8}, BlockSize: 192, Imm: 0xa1b2c3d4,
		Region: fabric.RemoteKey{Addr: 0x7f0000001000, Len: ringStart + 16*192, RKey: 0x55667788},
	}
}

func TestSetupGolden(t *testing.T) {
	s := goodSetup()
	b := s.Append([]byte{0xee})
	require.Equal(t, []byte{
		0xee,
		4, 2, 0, 0, // version, mode, reserved
		16, 0, 0, 0, 2, 0, 0, 0, 8, 0, 0, 0, // blocks, control, every
		192, 0, 0, 0, // block size
		0xd4, 0xc3, 0xb2, 0xa1, // imm
		0, 0x10, 0, 0, 0, 0x7f, 0, 0, // address
		0, 0x0d, 0, 0, 0, 0, 0, 0, // length
		0x88, 0x77, 0x66, 0x55, // key
	}, b)
	require.Len(t, b, 1+SetupSize)
	got, rest, err := ParseSetup(append(b[1:], 9))
	require.NoError(t, err)
	require.Equal(t, s, got)
	require.Equal(t, []byte{9}, rest)
	for n := range SetupSize {
		_, _, err := ParseSetup(b[1 : 1+n])
		require.ErrorIs(t, err, ErrSetup, "prefix of %d bytes", n)
	}
}

func TestSetupRefusesHostileGeometry(t *testing.T) {
	for what, spoil := range map[string]func(*Setup){
		"mode auto":        func(s *Setup) { s.Mode = ModeAuto },
		"unknown mode":     func(s *Setup) { s.Mode = 3 },
		"no blocks":        func(s *Setup) { s.Geometry.Blocks = 0 },
		"odd blocks":       func(s *Setup) { s.Geometry.Blocks = 15 },
		"endless blocks":   func(s *Setup) { s.Geometry.Blocks = 1 << 31; s.Region.Len = math.MaxUint64 },
		"no control":       func(s *Setup) { s.Geometry.Control = 0 },
		"all control":      func(s *Setup) { s.Geometry.Control = 16 },
		"never credit":     func(s *Setup) { s.Geometry.Every = 0 },
		"credit too late":  func(s *Setup) { s.Geometry.Every = 15 },
		"sum wraps":        func(s *Setup) { s.Geometry.Control, s.Geometry.Every = math.MaxUint32, 3 },
		"no block size":    func(s *Setup) { s.BlockSize = 0 },
		"odd block size":   func(s *Setup) { s.BlockSize = 100 },
		"huge block size":  func(s *Setup) { s.BlockSize = 1 << 31 },
		"region too short": func(s *Setup) { s.Region.Len-- },
		"region too long":  func(s *Setup) { s.Region.Len++ },
		"no address":       func(s *Setup) { s.Region.Addr = 0 },
		"odd address":      func(s *Setup) { s.Region.Addr += 4 },
		"address wraps":    func(s *Setup) { s.Region.Addr = math.MaxUint64 - 7 },
		"ring beyond 1 GiB": func(s *Setup) {
			s.Geometry.Blocks, s.BlockSize, s.Region.Len = 1<<20, 1<<20, ringStart+1<<40
		},
	} {
		s := goodSetup()
		spoil(&s)
		_, _, err := ParseSetup(s.Append(nil))
		require.ErrorIs(t, err, ErrSetup, what)
	}
	s := goodSetup()
	b := s.Append(nil)
	b[0]++
	_, _, err := ParseSetup(b)
	require.ErrorContains(t, err, "version")
	b = s.Append(nil)
	b[3] = 1
	_, _, err = ParseSetup(b)
	require.ErrorContains(t, err, "reserved")
}

func FuzzParseSetup(f *testing.F) {
	s := goodSetup()
	f.Add(s.Append(nil))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		s, rest, err := ParseSetup(b)
		if err != nil {
			require.ErrorIs(t, err, ErrSetup)
			return
		}
		require.Equal(t, b, append(s.Append(nil), rest...))
		require.NoError(t, s.Geometry.Validate())
		require.Equal(t, s.Region.Len, ringStart+uint64(s.Geometry.Blocks)*uint64(s.BlockSize))
	})
}

func TestConnectRefuses(t *testing.T) {
	open := simLinks(sim.Options{Caps: unordered("sim")})
	a, _ := open(t)
	ep, err := a.NewEndpoint(fabric.EndpointOptions{})
	require.NoError(t, err)
	c, err := Open(a, ep, Options{MaxPeerRing: 4096})
	require.NoError(t, err)
	defer c.Close()
	require.Equal(t, ModeCursor, c.Mode(), "the link promises no order inside a write")
	_, err = c.Send(Envelope{}, []byte("x"))
	require.ErrorIs(t, err, ErrNotConnected)
	_, err = c.Flush()
	require.ErrorIs(t, err, ErrNotConnected)
	require.Zero(t, c.MaxPayload(flowctl.Data, false))

	s := goodSetup()
	s.Geometry.Blocks, s.Region.Len = 32, ringStart+32*192
	require.ErrorContains(t, c.Connect(s), "MaxPeerRing")
	s = goodSetup()
	s.Mode = ModeLap
	require.ErrorContains(t, c.Connect(s), "LastByteLast")
	s = goodSetup()
	s.Geometry.Every = 0
	require.ErrorIs(t, c.Connect(s), ErrSetup)
	require.NoError(t, c.Connect(goodSetup()))
	require.ErrorIs(t, c.Connect(goodSetup()), ErrConnected)
	require.NoError(t, c.Close())
	require.NoError(t, c.Close())
	require.ErrorIs(t, c.Connect(goodSetup()), ErrClosed)
}

func TestOptions(t *testing.T) {
	caps := sim.CapsLike("sim")
	o, g, err := Options{}.effective(caps)
	require.NoError(t, err)
	require.Equal(t, ModeLap, o.Mode)
	require.Equal(t, flowctl.Geometry{Blocks: 64, Control: 8, Every: 32}, g)
	for _, bad := range []Options{
		{Blocks: 3}, {Blocks: -4}, {Blocks: 1}, {BlockSize: 65}, {BlockSize: -64}, {BlockSize: 2 << 20}, {Control: -1}, {Control: 64},
		{Every: 60}, {Mode: 9}, {Depth: 15}, {Depth: -1}, {Batch: 7}, {Batch: 5000}, {MaxPeerRing: -1},
		{Blocks: 1 << 20, BlockSize: 1 << 20}, {Control: math.MaxInt}, {Every: math.MaxInt},
	} {
		_, _, err := bad.effective(caps)
		require.ErrorIs(t, err, ErrOptions, "%+v", bad)
	}
	_, _, err = Options{Mode: ModeLap}.effective(unordered("sim"))
	require.ErrorIs(t, err, ErrOptions)
	require.Equal(t, "mode(7)", Mode(7).String())
	require.Equal(t, "result(9)", Result(9).String())
}

func TestTrailerGolden(t *testing.T) {
	w := makeTrailer(0x11223344, 0xab, flagFirst|flagLast|flagMeta, 0xcafe)
	b := binary.LittleEndian.AppendUint64(nil, uint64(w))
	require.Equal(t, []byte{0x44, 0x33, 0x22, 0x11, 0xab, 0x07, 0xfe, 0xca}, b)
	require.Equal(t, uint32(0x11223344), w.length())
	require.Equal(t, uint8(0xab), w.kind())
	require.Equal(t, uint8(7), w.flags())
	require.Equal(t, uint16(0xcafe), w.lap())
}

func TestSplit(t *testing.T) {
	r := newRing(flowctl.DefaultGeometry(32), 128)
	for n := range 1500 {
		for _, meta := range []bool{false, true} {
			k, fill := r.split(uint64(n), meta)
			extra := 0
			if meta {
				extra = 8
			}
			hold := fill + (k-1)*128
			require.Zero(t, fill%8)
			require.LessOrEqual(t, fill, r.room())
			require.GreaterOrEqual(t, fill, extra)
			require.GreaterOrEqual(t, hold, n+extra)
			require.Less(t, hold, n+extra+16, "no more than padding is wasted, and 8 bytes where meta fills the first block")
			if k > 1 {
				require.Greater(t, n, fill-extra+(k-2)*128, "no block too many")
			}
		}
	}
	k, _ := r.split(math.MaxUint32, true)
	require.Greater(t, k, 1<<20)
}

// The layout of the region and the sizes of what exists once a peer.
func TestSizes(t *testing.T) {
	require.Zero(t, ringStart%64)
	require.Equal(t, 128, creditCell-cursorCell)
	require.Equal(t, 44, SetupSize)
	testutil.Size(t, 736, unsafe.Sizeof(Channel{})) // growth must be worth it
	testutil.Size(t, 16, unsafe.Sizeof(Lease{}))
	testutil.Size(t, 16, unsafe.Sizeof(Envelope{}))
	testutil.Size(t, 24, unsafe.Sizeof(Head{}))
}
