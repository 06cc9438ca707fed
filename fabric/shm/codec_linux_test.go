package shm

import (
	"encoding/hex"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
)

func testAddress() (a address) {
	for i := range a.host {
		a.host[i], a.name[i], a.token[i] = byte(i), byte(0x40+i), byte(0x80+i)
	}
	return a
}

func TestAddress(t *testing.T) {
	a := testAddress()
	b := a.append(nil)
	require.Equal(t, "726d617302000000000102030405060708090a0b0c0d0e0f"+
		"404142434445464748494a4b4c4d4e4f808182838485868788898a8b8c8d8e8f", hex.EncodeToString(b[:addressSize-4]))
	require.LessOrEqual(t, len(b), fabric.MaxAddress)
	got, err := parseAddress(b)
	require.NoError(t, err)
	require.Equal(t, a, got)
	for n := range b {
		_, err := parseAddress(b[:n])
		require.ErrorIs(t, err, fabric.ErrBadAddress)
		bad := append([]byte(nil), b...)
		bad[n] ^= 0x10
		_, err = parseAddress(bad)
		require.ErrorIs(t, err, fabric.ErrBadAddress, "byte %d changed", n)
	}
	_, err = parseAddress(append(b, 0))
	require.ErrorIs(t, err, fabric.ErrBadAddress)
}

func FuzzParseAddress(f *testing.F) {
	a := testAddress()
	f.Add(a.append(nil))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := parseAddress(b)
		if err != nil {
			require.ErrorIs(t, err, fabric.ErrBadAddress)
			return
		}
		require.Equal(t, b, a.append(nil))
	})
}

func TestFrames(t *testing.T) {
	good := []message{
		{kind: frameNotify, imm: 0xffffffff, bytes: 0xffffffff},
		{kind: frameBye},
		{kind: frameWrite, slot: maxReqs - 1, addr: 1<<63 + 1, key: 0xdeadbeef, bytes: chunkSize, req: 1 << 60},
		{kind: frameRead, addr: 3, key: 1, bytes: 0},
		{kind: frameFetchAdd, slot: 1, addr: 64, key: 9, bytes: 8, operand: ^uint64(0)},
		{kind: frameCompareSwap, addr: 72, key: 9, bytes: 8, operand: 5, compare: 6, req: 7},
	}
	for _, m := range good {
		w := m.words()
		got, err := parseFrame(&w)
		require.NoError(t, err)
		require.Equal(t, m, got)
		w[6] = 1
		_, err = parseFrame(&w)
		require.ErrorIs(t, err, ErrCorrupt)
		w = m.words()
		w[0] |= 1 << 8
		_, err = parseFrame(&w)
		require.ErrorIs(t, err, ErrCorrupt)
	}
	for _, m := range []message{
		{},
		{kind: frameBye + 1},
		{kind: 255},
		{kind: frameNotify, slot: 1},
		{kind: frameBye, imm: 1},
		{kind: frameWrite, slot: maxReqs},
		{kind: frameWrite, bytes: chunkSize + 1},
		{kind: frameRead, bytes: 0xffffffff},
		{kind: frameFetchAdd, bytes: 4},
		{kind: frameFetchAdd, bytes: 8, addr: 4},
		{kind: frameCompareSwap, bytes: 8, addr: 8, slot: 0xffff},
	} {
		w := m.words()
		_, err := parseFrame(&w)
		require.ErrorIs(t, err, ErrCorrupt, "%+v", m)
	}
	w := good[2].words()
	require.Equal(t, frameWords{0x000f0002, 1<<63 + 1, 0x8000<<32 | 0xdeadbeef, 0, 0, 1 << 60, 0}, w)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		w := good[4].words()
		if _, err := parseFrame(&w); err != nil {
			t.Fatal(err)
		}
	}))
}

func TestMessages(t *testing.T) {
	h := hello{to: testAddress().name, from: testAddress().token, nonceAddr: 1<<40 + 7}
	b := h.append(nil)
	require.Len(t, b, helloSize)
	got, err := parseHello(b)
	require.NoError(t, err)
	require.Equal(t, h, got)
	for n := range b {
		_, err := parseHello(b[:n])
		require.ErrorIs(t, err, ErrCorrupt)
	}
	b[4]++
	_, err = parseHello(b)
	require.ErrorIs(t, err, ErrCorrupt, "other version")

	for _, n := range []note{{typ: msgSegment, seg: 7, size: 4096, fd: -1}, {typ: msgGone, seg: 1 << 31, fd: -1}, {typ: msgAgain, seg: 9, fd: -1}} {
		b := n.append(nil)
		got, err := parseNote(b)
		require.NoError(t, err)
		require.Equal(t, n, got)
		for k := range b {
			_, err := parseNote(b[:k])
			require.ErrorIs(t, err, ErrCorrupt)
		}
		_, err = parseNote(append(b, 0))
		require.ErrorIs(t, err, ErrCorrupt)
	}
	for _, n := range []note{
		{typ: msgSegment, seg: 0, size: 1}, {typ: msgSegment, seg: 1, size: 0},
		{typ: msgSegment, seg: 1, size: maxSegment + 1}, {typ: msgGone}, {typ: msgWake, seg: 1}, {typ: 99, seg: 1},
	} {
		_, err := parseNote(n.append(nil))
		require.ErrorIs(t, err, ErrCorrupt, "%+v", n)
	}
}

func FuzzMessages(f *testing.F) {
	h := hello{nonceAddr: 5}
	f.Add(h.append(nil))
	f.Add((&note{typ: msgSegment, seg: 7, size: 4096}).append(nil))
	f.Add((&note{typ: msgGone, seg: 7}).append(nil))
	f.Add(wakeMessage)
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, err := parseHello(b); err == nil {
			require.Equal(t, b, h.append(nil))
		}
		if n, err := parseNote(b); err == nil {
			require.Equal(t, b, n.append(nil))
		}
		if len(b) >= int(unsafe.Sizeof(frameWords{})) {
			w := *(*frameWords)(unsafe.Pointer(&b[0]))
			if m, err := parseFrame(&w); err == nil {
				back := m.words()
				require.Equal(t, w, back)
				require.Less(t, int(m.slot), maxReqs)
			}
		}
	})
}
