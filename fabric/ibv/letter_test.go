package ibv

import (
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/testutil"
	"github.com/seed33544411/rma/verbs"
)

func TestLetterGoldenBytes(t *testing.T) {
	x := letter{kind: letterCompareSwap, key: 0x01020304, addr: 0x1112131415161718, compare: 0x21, operand: 0x31}
	b := make([]byte, letterSize)
	x.put(b)
	require.Equal(t, "03000000"+"04030201"+"1817161514131211"+"2100000000000000"+"3100000000000000", hex.EncodeToString(b))
	got, ok := readLetter(b)
	require.True(t, ok)
	require.Equal(t, x, got)
	for n := range b {
		_, ok := readLetter(b[:n])
		require.False(t, ok, "%d bytes", n)
	}
	for _, kind := range []byte{0, letterAnswer + 1, 255} {
		b[0] = kind
		_, ok := readLetter(b)
		require.False(t, ok, "kind %d", kind)
	}
	b[0], b[1] = letterNotify, 1
	_, ok = readLetter(b)
	require.False(t, ok, "kind of 32 bits")
}

// A peer's request for an atomic is executed only where a device would execute it.
func TestAsksAreChecked(t *testing.T) {
	mem := testutil.Scratch(t, 64)
	testutil.Store64(mem[8:], 7)
	addr := fabric.Addr(mem)
	r := &region{mem: mem, access: fabric.AccessAll, key: fabric.RemoteKey{Addr: addr, Len: 64, RKey: 5}}
	l := &Link{regions: map[*region]struct{}{r: {}}}
	old, ok := l.execute(&letter{kind: letterFetchAdd, key: 5, addr: addr + 8, operand: 2})
	require.True(t, ok)
	require.EqualValues(t, 7, old)
	old, ok = l.execute(&letter{kind: letterCompareSwap, key: 5, addr: addr + 8, compare: 9, operand: 3})
	require.True(t, ok)
	require.EqualValues(t, 9, old)
	require.EqualValues(t, 3, testutil.Load64(mem[8:]))
	for name, x := range map[string]letter{
		"key":        {key: 6, addr: addr + 8},
		"before":     {key: 5, addr: addr - 8},
		"behind":     {key: 5, addr: addr + 64},
		"misaligned": {key: 5, addr: addr + 4},
		"wraps":      {key: 5, addr: ^uint64(7)},
	} {
		x.kind, x.operand = letterFetchAdd, 1
		_, ok := l.execute(&x)
		require.False(t, ok, name)
	}
	r.access &^= fabric.AccessRemoteAtomic
	_, ok = l.execute(&letter{kind: letterFetchAdd, key: 5, addr: addr + 8, operand: 1})
	require.False(t, ok, "right")
	require.EqualValues(t, 3, testutil.Load64(mem[8:]))
}

// The receive that a letter is read from, and its length, come from the device; both are
// checked all the same.
func TestMailboxIsReadWithinItsBounds(t *testing.T) {
	m := &mailbox{mem: make([]byte, 3*letterSize), pieces: make([]verbs.SGE, 3), slots: 1}
	(&letter{kind: letterNotify, key: 4}).put(m.mem[2*letterSize:])
	x, ok := m.read(1, letterSize)
	require.True(t, ok)
	require.EqualValues(t, 4, x.key)
	for _, c := range [][2]uint32{{2, letterSize}, {1 << 31, letterSize}, {1, letterSize + 1}, {1, letterSize - 1}} {
		_, ok := m.read(c[0], c[1])
		require.False(t, ok, c)
	}
	m.free = []uint32{0, 1}
	require.Equal(t, []uint64{1, 0}, []uint64{m.receive(0).ID, m.receive(0).ID})
	m.emptied(&verbs.WC{ID: idRecv | 1})
	require.Equal(t, uint64(idRecv|1), m.receive(idRecv).ID)
}

// A letter behind a write takes one of the requests that may carry the pieces, and the error says so.
func TestLetterBehindTooManyPieces(t *testing.T) {
	l := &Link{adapter: adapter{caps: fabric.Caps{MaxSGE: 2, MaxMessage: 1 << 20}, noImm: true}}
	e := &endpoint{l: l, slots: make([]slot, 2*chainMax), depth: 2 * chainMax}
	e.mail = &mailbox{e: e}
	w := fabric.WR{Op: fabric.OpWrite, Flags: fabric.FlagNotify}
	for range 2 * chainMax {
		w.Local = append(w.Local, fabric.SGE{Addr: 1 << 20, Len: 1})
	}
	_, _, err := e.chain([]fabric.WR{w}, 0)
	require.ErrorIs(t, err, fabric.ErrInvalidWR)
	require.ErrorContains(t, err, "128 local pieces, at most 126")
}
