package sampling

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/sim"
)

func goodSetup() Setup {
	return Setup{
		First: true, Mode: Force, MaxSize: 1 << 16, Budget: 50 * time.Millisecond, Digest: Digest{1, 2, 15: 3},
		Region: fabric.RemoteKey{Addr: 0x7f0000001000, Len: regionSize, RKey: 0x55667788},
	}
}

func TestSetupGolden(t *testing.T) {
	s := goodSetup()
	b := s.Append([]byte{0xee})
	require.Equal(t, []byte{
		0xee,
		1, 1, 1, 0, // version, first, mode, reserved
		0, 0, 1, 0, // largest size
		0x80, 0xf0, 0xfa, 2, 0, 0, 0, 0, // budget
		1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, // digest
		0, 0x10, 0, 0, 0, 0x7f, 0, 0, // address
		0, 0x10, 1, 0, 0, 0, 0, 0, // length
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

func TestSetupRefusesHostile(t *testing.T) {
	for what, spoil := range map[string]func(*Setup){
		"unknown mode":     func(s *Setup) { s.Mode = numModes },
		"no size":          func(s *Setup) { s.MaxSize = 0 },
		"odd size":         func(s *Setup) { s.MaxSize = 5000 },
		"endless size":     func(s *Setup) { s.MaxSize = 1 << 30 },
		"top bit":          func(s *Setup) { s.MaxSize = math.MinInt32 },
		"no budget":        func(s *Setup) { s.Budget = 0 },
		"endless budget":   func(s *Setup) { s.Budget = math.MaxInt64 },
		"negative budget":  func(s *Setup) { s.Budget = -1 },
		"region too short": func(s *Setup) { s.Region.Len-- },
		"region too long":  func(s *Setup) { s.Region.Len++ },
		"no address":       func(s *Setup) { s.Region.Addr = 0 },
		"odd address":      func(s *Setup) { s.Region.Addr += 4 },
		"address wraps":    func(s *Setup) { s.Region.Addr = math.MaxUint64 - 7 },
	} {
		s := goodSetup()
		spoil(&s)
		_, _, err := ParseSetup(s.Append(nil))
		require.ErrorIs(t, err, ErrSetup, what)
	}
	for i := range 4 {
		s := goodSetup()
		b := s.Append(nil)
		b[i] = 0x80
		_, _, err := ParseSetup(b)
		require.ErrorIs(t, err, ErrSetup, "byte %d", i)
	}
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
		require.True(t, goodSize(s.MaxSize))
		require.Equal(t, uint64(regionSize), s.Region.Len)
	})
}

func TestOptionsAreChecked(t *testing.T) {
	a, _ := simLinks(sim.Options{})(t)
	ep, err := a.NewEndpoint(fabric.EndpointOptions{})
	require.NoError(t, err)
	for _, bad := range []Options{
		{Mode: 9}, {Budget: time.Microsecond}, {Budget: time.Hour}, {Budget: -1}, {MaxSize: 100}, {MaxSize: 5000}, {MaxSize: 1 << 30}, {MaxSize: -4096},
		{MaxBytes: -1}, {StepTimeout: -1}, {Key: Key{Class: "nearby"}}, {Key: Key{Device: string(make([]byte, 200))}},
	} {
		_, err := Open(a, ep, bad)
		require.ErrorIs(t, err, ErrOptions, "%+v", bad)
	}
	s, err := Open(a, ep, Options{})
	require.NoError(t, err)
	_, err = s.Run(t.Context())
	require.ErrorIs(t, err, ErrState, "not connected")
	peer := goodSetup()
	peer.First = false
	require.ErrorIs(t, s.Connect(peer), ErrSetup, "nobody is the first")
	require.NoError(t, s.Connect(goodSetup()))
	require.ErrorIs(t, s.Connect(goodSetup()), ErrState)
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
	_, err = s.Run(t.Context())
	require.ErrorIs(t, err, ErrState, "closed")
	for m := range numModes {
		got, err := ParseMode(m.String())
		require.NoError(t, err)
		require.Equal(t, m, got)
	}
	_, err = ParseMode("mode(3)")
	require.ErrorIs(t, err, ErrOptions)
}
