package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/verbs"
)

var someDest = dest{LID: 0x12, QPN: 0x345678, PSN: 0x9abcde, GID: verbs.GID{0xfe, 0x80, 10: 0xff, 11: 0xff, 12: 10, 13: 9, 14: 0, 15: 1}}

const someWire = "0012:345678:9abcde:fe800000000000000000ffff0a090001\x00"

func TestDestWire(t *testing.T) {
	t.Parallel()
	b := someDest.Append(nil)
	require.Equal(t, someWire, string(b))
	require.Len(t, b, destSize)
	d, err := parseDest(b)
	require.NoError(t, err)
	require.Equal(t, someDest, d)
	for n := range destSize {
		_, err := parseDest(b[:n])
		require.ErrorIs(t, err, errDest, "prefix of %d bytes", n)
	}
	_, err = parseDest(append(b, 0))
	require.ErrorIs(t, err, errDest)
}

func TestDestRefusesWhatIsNoAddress(t *testing.T) {
	t.Parallel()
	for i := range destSize {
		b := []byte(someWire)
		b[i] = 'g' // no digit, no colon, no zero
		_, err := parseDest(b)
		require.ErrorIs(t, err, errDest, "byte %d", i)
	}
	b := []byte(someWire)
	copy(b, "+012")
	_, err := parseDest(b)
	require.ErrorIs(t, err, errDest)
}

func FuzzParseDest(f *testing.F) {
	f.Add([]byte(someWire))
	f.Add([]byte("ffff:ffffff:ffffff:ffffffffffffffffffffffffffffffff\x00"))
	f.Add([]byte("0012:345678:9abcde:fe80"))
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := parseDest(b)
		if err != nil {
			return
		}
		again, err := parseDest(d.Append(nil))
		require.NoError(t, err)
		require.Equal(t, d, again)
		require.Less(t, d.QPN|d.PSN, uint32(1<<24))
	})
}
