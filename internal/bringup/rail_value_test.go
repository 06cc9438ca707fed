package bringup

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/initiator"
)

func TestRailValueBytes(t *testing.T) {
	for want, v := range map[string]RailValue{
		"\x21":                                 {Number: 1, Ready: true},
		"\x22\x88\x77\x66\x55\x44\x33\x22\x11": {Number: 2, Mark: 0x1122334455667788},
		"\x23\x08\x07\x06\x05\x04\x03\x02\x01\x10\x00\x00\x00\x00\x00\x00\x00\xef\xbe\xad\xdeat": {
			Number: 3, Address: []byte("at"), Word: fabric.RemoteKey{Addr: 0x0102030405060708, Len: 16, RKey: 0xdeadbeef},
		},
	} {
		b := v.Append(nil)
		require.Equal(t, want, string(b))
		got, err := ParseRailValue(b)
		require.NoError(t, err)
		require.Equal(t, v, got)
		for n := range b {
			got, err := ParseRailValue(b[:n])
			if n > 1+fabric.RemoteKeySize { // a shorter address
				require.Equal(t, v.Address[:n-1-fabric.RemoteKeySize], got.Address)
				continue
			}
			if n == 1 {
				require.True(t, got.Ready)
				continue
			}
			if n == 1+initiator.MarkSize { // looks like the end of a rail
				require.Empty(t, got.Address)
				continue
			}
			require.ErrorIs(t, err, fabric.ErrBadAddress)
		}
	}
	word := fabric.RemoteKey{Addr: 8, Len: 8}
	for name, b := range map[string][]byte{
		"rail 0":          (&RailValue{}).Append(nil),
		"rail 4":          (&RailValue{Number: 4}).Append(nil),
		"version 0":       {1},
		"version 1":       {0x11, 0, 0, 0, 0, 0, 0, 0, 0},
		"version 3":       {0x31, 0, 0, 0, 0, 0, 0, 0, 0},
		"no address":      word.Append([]byte{0x21}),
		"short word":      (&RailValue{Number: 1, Address: []byte("x"), Word: fabric.RemoteKey{Addr: 8, Len: 7}}).Append(nil),
		"crooked word":    (&RailValue{Number: 1, Address: []byte("x"), Word: fabric.RemoteKey{Addr: 9, Len: 8}}).Append(nil),
		"word that wraps": (&RailValue{Number: 1, Address: []byte("x"), Word: fabric.RemoteKey{Addr: 1<<64 - 8, Len: 9}}).Append(nil),
	} {
		_, err := ParseRailValue(b)
		require.ErrorIs(t, err, fabric.ErrBadAddress, name)
	}
}

func FuzzRailValue(f *testing.F) {
	f.Add((&RailValue{Number: 1, Mark: 3}).Append(nil))
	f.Add((&RailValue{Number: 2, Ready: true}).Append(nil))
	f.Add((&RailValue{Number: 3, Address: []byte("x"), Word: fabric.RemoteKey{Addr: 64, Len: 16, RKey: 1}}).Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if v, err := ParseRailValue(b); err == nil {
			require.Equal(t, b, v.Append(nil))
			require.True(t, 0 < v.Number && v.Number <= maxRail)
		} else {
			require.ErrorIs(t, err, fabric.ErrBadAddress)
		}
	})
}
