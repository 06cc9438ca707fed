package rma

import (
	"encoding/hex"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestKeyEncoding(t *testing.T) {
	k := Key{addr: 0x0102030405060708, length: 0x1122, has: 1<<0 | 1<<2, rkeys: [maxLinks]uint32{0xaabbccdd, 0, 0x11223344}}
	b := k.Append([]byte{0xee})
	require.Equal(t, "ee"+"0807060504030201"+"2211000000000000"+"05"+"ddccbbaa"+"00000000"+"44332211"+"00000000", hex.EncodeToString(b))
	require.Len(t, b, 1+KeySize)
	got, err := ParseKey(b[1:])
	require.NoError(t, err)
	require.Equal(t, k, got)
	require.EqualValues(t, 0x1122, got.Len())
	for n := range KeySize {
		_, err := ParseKey(b[1 : 1+n])
		require.ErrorIs(t, err, ErrBadKey, "cut to %d bytes", n)
	}
	_, err = ParseKey(append(b[1:], 0))
	require.ErrorIs(t, err, ErrBadKey, "a byte too many")
	for name, bad := range map[string]Key{
		"address wraps":       {addr: math.MaxUint64, length: 2},
		"unknown link":        {has: 1 << maxLinks},
		"key without its bit": {has: 1, rkeys: [maxLinks]uint32{0, 7}},
	} {
		_, err := ParseKey(bad.Append(nil))
		require.ErrorIs(t, err, ErrBadKey, name)
	}
}

func FuzzParseKey(f *testing.F) {
	k := Key{addr: 4096, length: 8192, has: 3, rkeys: [maxLinks]uint32{1, 2}}
	f.Add(k.Append(nil))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		k, err := ParseKey(b)
		if err != nil {
			require.ErrorIs(t, err, ErrBadKey)
			return
		}
		require.Equal(t, b, k.Append(nil))
		require.LessOrEqual(t, k.addr, k.addr+k.length)
	})
}
