package wireup

import (
	"bytes"
	"encoding/hex"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

func seq32(from byte) (b [32]byte) {
	for i := range b {
		b[i] = from + byte(i)
	}
	return b
}

// golden is one frame of each type with the bytes it must have on the wire.
var golden = []struct {
	m   message
	hex string
}{
	{message{typ: msgHello, version: Version, nonce: seq32(0)},
		"27000000" + "01" + "524d4157" + "0500" + "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"},
	{message{typ: msgJoin, version: Version, rank: 1, size: 0x0203, nonce: seq32(0), mac: seq32(0x20)},
		"4f000000" + "02" + "524d4157" + "0500" + "01000000" + "03020000" + "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f" + "202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f"},
	{message{typ: msgWelcome, mac: seq32(0)}, "21000000" + "03" + "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"},
	{message{typ: msgRefuse, code: codeToken, version: Version, text: "no"}, "08000000" + "04" + "02" + "0500" + "0200" + "6e6f"},
	{message{typ: msgPut, id: 7, key: "k", val: []byte{9, 8}}, "0e000000" + "05" + "07000000" + "0100" + "6b" + "02000000" + "0908"},
	{message{typ: msgGet, id: 7, rank: 5, key: "k"}, "0c000000" + "06" + "07000000" + "05000000" + "0100" + "6b"},
	{message{typ: msgGather, id: 7, key: "k", val: []byte{}}, "0c000000" + "07" + "07000000" + "0100" + "6b" + "00000000"},
	{message{typ: msgCancel, id: 0x01020304}, "05000000" + "08" + "04030201"},
	{message{typ: msgAbort, rank: 2, text: "x"}, "08000000" + "09" + "02000000" + "0100" + "78"},
	{message{typ: msgLeave}, "01000000" + "0a"},
	{message{typ: msgDone, id: 3, code: codeTimeout, ranks: []uint32{1, 2}, size: 4, text: "t"},
		"16000000" + "0b" + "03000000" + "08" + "02" + "01000000" + "02000000" + "04000000" + "0100" + "74"},
	{message{typ: msgValue, id: 3, val: []byte{1}}, "0a000000" + "0c" + "03000000" + "01000000" + "01"},
	{message{typ: msgValues, id: 3, vals: [][]byte{{1}, {}}}, "12000000" + "0d" + "03000000" + "02000000" + "01000000" + "01" + "00000000"},
	{message{typ: msgGone, rank: 9, text: ""}, "07000000" + "0e" + "09000000" + "0000"},
	{message{typ: msgSend, id: 7, rank: 5, key: "k", val: []byte{9}}, "11000000" + "0f" + "07000000" + "05000000" + "0100" + "6b" + "01000000" + "09"},
	{message{typ: msgDeliver, rank: 5, key: "k", val: []byte{9}}, "0d000000" + "10" + "05000000" + "0100" + "6b" + "01000000" + "09"},
	{message{typ: msgGiveUp, id: 7, key: "k"}, "08000000" + "11" + "07000000" + "0100" + "6b"},
	{message{typ: msgMissing, id: 7, key: "k"}, "08000000" + "12" + "07000000" + "0100" + "6b"},
	{message{typ: msgHung, rank: 2, text: "x"}, "08000000" + "13" + "02000000" + "0100" + "78"},
	{message{typ: msgTake, key: "k"}, "04000000" + "14" + "0100" + "6b"},
}

func TestGoldenFrames(t *testing.T) {
	seen := map[msgType]bool{}
	for _, g := range golden {
		seen[g.m.typ] = true
		b := g.m.append([]byte{0xee})
		require.Equal(t, "ee"+g.hex, hex.EncodeToString(b), "type %d", g.m.typ)
		got, err := readFrame(bytes.NewReader(b[1:]), maxToRank)
		require.NoError(t, err, "type %d", g.m.typ)
		require.Equal(t, b[1:], got.append(nil))
		require.Equal(t, g.m, got)
	}
	for typ := msgHello; typ < numMsg; typ++ {
		require.True(t, seen[typ], "type %d has no golden frame", typ)
	}
}

func TestEveryPrefixFails(t *testing.T) {
	for _, g := range golden {
		b := g.m.append(nil)
		for n := range b {
			_, err := readFrame(bytes.NewReader(b[:n]), maxToRank)
			require.Error(t, err, "type %d cut to %d bytes", g.m.typ, n)
		}
		for n := range len(b) - 4 {
			_, err := parse(b[4 : 4+n])
			require.ErrorIs(t, err, ErrProtocol, "type %d body cut to %d bytes", g.m.typ, n)
		}
		_, err := parse(append(b[4:], 0))
		require.ErrorIs(t, err, ErrProtocol, "type %d with a byte too many", g.m.typ)
	}
}

func TestBounds(t *testing.T) {
	long := message{typ: msgPut, key: string(make([]byte, MaxKey+1))}
	_, err := parse(long.append(nil)[4:])
	require.ErrorIs(t, err, ErrProtocol)
	long = message{typ: msgPut, val: make([]byte, MaxValue+1)}
	_, err = parse(long.append(nil)[4:])
	require.ErrorIs(t, err, ErrProtocol)
	for _, n := range []uint32{0, maxHandshake + 1, 1 << 31, ^uint32(0)} {
		_, err = readFrame(io.MultiReader(bytes.NewReader(le.AppendUint32(nil, n)), neverReader{t}), maxHandshake)
		require.ErrorIs(t, err, ErrProtocol)
	}
	// A count of values that the frame cannot hold is refused before it is believed.
	_, err = parse(append([]byte{byte(msgValues), 0, 0, 0, 0}, 0xff, 0xff, 0xff, 0xff))
	require.ErrorIs(t, err, ErrProtocol)
	// Another version's hello says its version whatever follows.
	m, err := parse(append([]byte{byte(msgHello), 'R', 'M', 'A', 'W'}, 7, 7, 1, 2, 3))
	require.NoError(t, err)
	require.Equal(t, uint16(0x0707), m.version)
}

type neverReader struct{ t *testing.T }

func (r neverReader) Read([]byte) (int, error) {
	r.t.Error("read on after a bad length")
	return 0, io.EOF
}

func FuzzParse(f *testing.F) {
	for _, g := range golden {
		f.Add(g.m.append(nil)[4:])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := parse(b)
		if err != nil {
			require.ErrorIs(t, err, ErrProtocol)
			return
		}
		if (m.typ == msgHello || m.typ == msgJoin) && m.version != Version {
			return
		}
		require.Equal(t, b, m.append(nil)[4:], "parse and append disagree")
	})
}
