package mr

import (
	"encoding/hex"
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
)

func sampleKey() Key {
	return Key{
		Addr: 0x0102030405060708, Len: 0x1122,
		Ref:    Ref{Slot: 0x1234, Epoch: 0xa1a2a3a4b1b2b3b4},
		Rights: fabric.AccessRemoteRead | fabric.AccessRemoteWrite,
		Rails:  1<<0 | 1<<2, Owner: 0x0203, RKeys: [MaxRails]uint32{0xaabbccdd, 0, 0x11223344, 0},
	}
}

func TestKeyEncoding(t *testing.T) {
	k := sampleKey()
	b := k.Append([]byte{0xee})
	require.Equal(t, "ee"+
		"0807060504030201"+"2211000000000000"+ // address, length
		"34120000"+"b4b3b2b1a4a3a2a1"+ // slot, epoch
		"06"+"05"+"0302"+ // rights, rails, owner
		"ddccbbaa"+"00000000"+"44332211"+"00000000", hex.EncodeToString(b))
	require.Len(t, b, 1+KeySize)
	got, rest, err := ParseKey(append(b[1:], 7, 8))
	require.NoError(t, err)
	require.Equal(t, k, got)
	require.Equal(t, []byte{7, 8}, rest)
	for n := range KeySize {
		_, _, err := ParseKey(b[1 : 1+n])
		require.ErrorIs(t, err, ErrBadKey, "cut to %d bytes", n)
	}
	for what, spoil := range map[string]func(k *Key, b []byte){
		"address wraps":        func(k *Key, b []byte) { k.Addr, k.Len = math.MaxUint64, 2 },
		"slot out of range":    func(k *Key, b []byte) { k.Ref.Slot = MaxRegistrations },
		"no epoch":             func(k *Key, b []byte) { k.Ref.Epoch = 0 },
		"unknown right":        func(k *Key, b []byte) { k.Rights |= 1 << 4 },
		"no rail":              func(k *Key, b []byte) { k.Rails, k.RKeys = 0, [MaxRails]uint32{} },
		"unknown rail":         func(k *Key, b []byte) { k.Rails |= 1 << MaxRails },
		"key without its rail": func(k *Key, b []byte) { k.RKeys[1] = 7 },
	} {
		k := sampleKey()
		spoil(&k, nil)
		_, _, err := ParseKey(k.Append(nil))
		require.ErrorIs(t, err, ErrBadKey, what)
	}
}

func TestRefEncoding(t *testing.T) {
	r := Ref{Slot: 0x1234, Epoch: 0xa1a2a3a4b1b2b3b4}
	b := r.Append([]byte{0xee})
	require.Equal(t, "ee"+"34120000"+"b4b3b2b1a4a3a2a1", hex.EncodeToString(b))
	got, rest, err := ParseRef(append(b[1:], 9))
	require.NoError(t, err)
	require.Equal(t, r, got)
	require.Equal(t, []byte{9}, rest)
	for n := range RefSize {
		_, _, err := ParseRef(b[1 : 1+n])
		require.ErrorIs(t, err, ErrBadKey)
	}
	for _, bad := range []Ref{{}, {Slot: 1}, {Slot: MaxRegistrations, Epoch: 1}, {Slot: math.MaxUint32, Epoch: 1}} {
		_, _, err := ParseRef(bad.Append(nil))
		require.ErrorIs(t, err, ErrBadKey, "%v", bad)
	}
}

func TestKeyCheck(t *testing.T) {
	k := Key{Addr: 1000, Len: 100, Rights: fabric.AccessRemoteRead, Rails: 1 << 2, RKeys: [MaxRails]uint32{2: 77}}
	for _, c := range []struct {
		addr, n uint64
		need    fabric.Access
		want    error
	}{
		{1000, 100, fabric.AccessRemoteRead, nil},
		{1099, 1, fabric.AccessRemoteRead, nil},
		{1100, 0, 0, nil},
		{1000, 101, 0, ErrBounds},
		{999, 1, 0, ErrBounds},
		{1101, 0, 0, ErrBounds},
		{1050, math.MaxUint64, 0, ErrBounds},
		{math.MaxUint64, 1002, 0, ErrBounds},
		{1000, 1, fabric.AccessRemoteWrite, ErrRights},
		{1000, 1, fabric.AccessAll, ErrRights},
	} {
		err := k.Check(c.addr, c.n, c.need)
		require.ErrorIs(t, err, c.want)
		if c.want != nil {
			require.ErrorIs(t, err, fabric.ErrRemoteAccess)
			var ke *KeyError
			require.True(t, errors.As(err, &ke))
			require.Equal(t, KeyError{Addr: c.addr, Len: c.n, Need: c.need, Err: c.want}, *ke)
			require.NotEmpty(t, ke.Error())
		}
	}
	s, err := k.Slice(90, 10)
	require.NoError(t, err)
	require.NoError(t, s.Check(1090, 10, 0))
	require.ErrorIs(t, s.Check(1089, 1, 0), ErrBounds)
	for _, c := range [][2]uint64{{0, 0}, {0, 101}, {100, 1}, {math.MaxUint64, 2}} {
		_, err := k.Slice(c[0], c[1])
		require.ErrorIs(t, err, ErrBounds)
	}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if k.Check(1000, 100, fabric.AccessRemoteRead) != nil {
			t.Fatal("refused")
		}
	}))
}

func FuzzParseKey(f *testing.F) {
	k := sampleKey()
	f.Add(k.Append(nil))
	f.Add(append(k.Append(nil), 1))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		k, rest, err := ParseKey(b)
		if err != nil {
			require.ErrorIs(t, err, ErrBadKey)
			require.Equal(t, Key{}, k)
			require.Equal(t, b, rest)
			return
		}
		require.Equal(t, b, append(k.Append(nil), rest...))
		require.NoError(t, k.Check(k.Addr, k.Len, k.Rights))
		require.ErrorIs(t, k.Check(k.Addr, k.Len+1, 0), ErrBounds)
		r, _, err := ParseRef(b[16:])
		require.NoError(t, err)
		require.Equal(t, k.Ref, r)
	})
}
