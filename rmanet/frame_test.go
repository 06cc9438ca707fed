package rmanet

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// golden is one frame of each kind and its bytes, as docs/wire.md has them.
var golden = []struct {
	f     frame
	bytes string
}{
	{frame{kind: kindOpen, num: 0x010203, n: 1 << 20, service: "8080"}, "01000c0003020100" + "0200000000001000" + "38303830"},
	{frame{kind: kindAccept, toOpener: true, num: 1, n: 1 << 20}, "0201040001000000" + "00001000"},
	{frame{kind: kindCredit, num: numberMax, n: 0x1122334455667788}, "03000800ffff7f00" + "8877665544332211"},
	{frame{kind: kindFin, toOpener: true, num: 2, n: 5}, "0401080002000000" + "0500000000000000"},
	{frame{kind: kindStop, num: 2}, "0500000002000000"},
	{frame{kind: kindReset, num: 3, n: resetRefused}, "0600040003000000" + "02000000"},
}

func TestFrames(t *testing.T) {
	var all []byte
	for _, g := range golden {
		b := g.f.append(nil)
		require.Equal(t, g.bytes, hex.EncodeToString(b))
		f, rest, err := parseFrame(b)
		require.NoError(t, err)
		require.Empty(t, rest)
		require.Equal(t, g.f, f)
		for n := range b {
			_, _, err := parseFrame(b[:n])
			require.ErrorIs(t, err, ErrProtocol, "%d of %d bytes", n, len(b))
		}
		all = append(all, b...)
	}
	for _, g := range golden { // one behind the other
		f, rest, err := parseFrame(all)
		require.NoError(t, err)
		require.Equal(t, g.f, f)
		all = rest
	}
}

func TestBadFrames(t *testing.T) {
	for name, s := range map[string]string{
		"kind 0":         "0000000001000000",
		"kind 7":         "0700000001000000",
		"flag":           "0502000001000000",
		"stream 0":       "0500000000000000",
		"stream 2^23":    "0500000000008000",
		"body of stop":   "050001000100000000",
		"short accept":   "02000300010000000000 00",
		"long reset":     "060005000100000000000000 00",
		"version":        "01000c0001000000" + "0100000000001000" + "38303830",
		"reserved":       "01000c0001000000" + "0201000000001000" + "38303830",
		"no service":     "0100080001000000" + "0200000000001000",
		"tilde":          "0100090001000000" + "0200000000001000" + "7e",
		"above ports":    "01000d0001000000" + "0200000000001000" + "3635353336",
		"short open":     "0100040001000000" + "02000000",
		"service of 201": "0100d10001000000" + "0200000000001000" + strings.Repeat("41", 201),
	} {
		b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
		require.NoError(t, err, name)
		_, _, err = parseFrame(b)
		require.ErrorIs(t, err, ErrProtocol, name)
	}
}

func TestFramesDoNotAllocate(t *testing.T) {
	buf := make([]byte, 0, frameMax)
	f := frame{kind: kindCredit, num: 9, n: 77}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		buf = f.append(buf[:0])
		if g, _, err := parseFrame(buf); err != nil || g.n != f.n {
			panic("lost")
		}
	}))
}

// A frame has exactly one encoding.
func FuzzFrame(f *testing.F) {
	for _, g := range golden {
		f.Add(g.f.append(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		x, rest, err := parseFrame(b)
		if err != nil {
			require.ErrorIs(t, err, ErrProtocol)
			return
		}
		require.Equal(t, b[:len(b)-len(rest)], x.append(nil))
	})
}

func TestNumbers(t *testing.T) {
	require.EqualValues(t, 1, next(0))
	require.EqualValues(t, 2, next(1))
	require.EqualValues(t, 1, next(numberMax))
	require.EqualValues(t, 1, after(1, numberMax))
	require.EqualValues(t, 0, after(5, 5))
	require.EqualValues(t, numberMax-1, after(4, 5))
}

func FuzzAddr(f *testing.F) {
	for _, s := range []string{"1:8080", "rank3.rma:http", "rank01.rma:a.b-c", ":", "0:~1", "99999999999:x", "0:65536"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := ParseAddr(s)
		if err != nil {
			return
		}
		b, err := ParseAddr(a.String())
		require.NoError(t, err)
		require.Equal(t, a, b)
	})
}
