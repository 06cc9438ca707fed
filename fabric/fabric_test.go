package fabric

import (
	"errors"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/offheap"
	"github.com/seed33544411/rma/internal/testutil"
)

// TestLayout pins sizes and offsets that device lists and hot loops rely on.
func TestLayout(t *testing.T) {
	require.Equal(t, uintptr(16), unsafe.Sizeof(SGE{}))
	require.Equal(t, uintptr(0), unsafe.Offsetof(SGE{}.Addr))
	require.Equal(t, uintptr(8), unsafe.Offsetof(SGE{}.Len))
	require.Equal(t, uintptr(12), unsafe.Offsetof(SGE{}.LKey))
	testutil.Size(t, 72, unsafe.Sizeof(WR{}))
	testutil.Size(t, 32, unsafe.Sizeof(Completion{}))
}

func TestEveryStatusHasAnError(t *testing.T) {
	require.NoError(t, StatusOK.Err())
	for s := StatusOK + 1; s < numStatus; s++ {
		require.Error(t, s.Err())
		c := Completion{Op: OpRead, Status: s, EP: 3, Vendor: 0x81}
		require.ErrorIs(t, c.Err(), s.Err())
		var oe *OpError
		require.True(t, errors.As(c.Err(), &oe))
		require.Contains(t, oe.Error(), "read on endpoint 3")
		require.Contains(t, oe.Error(), "0x81")
	}
	require.ErrorIs(t, Status(250).Err(), ErrUnknownStatus)
	require.Equal(t, "status(250)", Status(250).String())
	require.NoError(t, (&Completion{}).Err())
	require.ErrorIs(t, &WRError{Index: 2, Op: OpWrite, Reason: "x"}, ErrInvalidWR)
	require.Equal(t, "op(99)", Op(99).String())
}

func TestRemoteKey(t *testing.T) {
	k := RemoteKey{Addr: 0x0102030405060708, Len: 0x1122, RKey: 0xaabbccdd}
	b := k.Append([]byte{9})
	require.Equal(t, []byte{9, 8, 7, 6, 5, 4, 3, 2, 1, 0x22, 0x11, 0, 0, 0, 0, 0, 0, 0xdd, 0xcc, 0xbb, 0xaa}, b)
	got, rest, err := ParseRemoteKey(append(b[1:], 7))
	require.NoError(t, err)
	require.Equal(t, k, got)
	require.Equal(t, []byte{7}, rest)
	for n := range RemoteKeySize {
		_, _, err := ParseRemoteKey(b[1 : 1+n])
		require.ErrorIs(t, err, ErrBadKey)
	}
	_, _, err = ParseRemoteKey(RemoteKey{Addr: ^uint64(0), Len: 2}.Append(nil))
	require.ErrorIs(t, err, ErrBadKey)
}

func FuzzParseRemoteKey(f *testing.F) {
	f.Add(RemoteKey{Addr: 1, Len: 2, RKey: 3}.Append(nil))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		k, rest, err := ParseRemoteKey(b)
		if err != nil {
			return
		}
		require.Equal(t, b, append(k.Append(nil), rest...))
		require.LessOrEqual(t, k.Addr, k.Addr+k.Len)
	})
}

func TestBytesAt(t *testing.T) {
	// Off-heap: a Go slice on the stack moves when the stack grows.
	mem, err := offheap.Alloc(3, offheap.Scratch)
	require.NoError(t, err)
	defer offheap.Free(mem, offheap.Scratch)
	s := NewSGE(mem, 5)
	require.Equal(t, uint32(3), s.Len)
	require.Equal(t, Addr(mem), s.Addr)
	v := BytesAt(s.Addr, 3)
	v[1] = 9
	require.Equal(t, byte(9), mem[1])
	require.Nil(t, BytesAt(0, 0))
	require.Zero(t, NewSGE(nil, 1).Addr)
	require.Zero(t, Addr(nil))
}
