package onesided

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/sim"
	"github.com/seed33544411/rma/internal/testutil"
	"github.com/seed33544411/rma/mr"
)

func sample() Request {
	return Request{Op: Max, Type: Float64, Count: 3, Ref: mr.Ref{Slot: 7, Epoch: 0x1122334455667788}, Addr: 0x1000}
}

func TestRequestBytes(t *testing.T) {
	r := sample()
	b := r.Append(nil)
	if bigEndian {
		b[3] = 1
	}
	require.Equal(t, "0202060103000000"+"0700000088776655"+"4433221100000000"+"0010000000000000", hex.EncodeToString(b))
	require.Len(t, b, HeaderSize)
	got, err := ParseRequest(r.Append(nil))
	require.NoError(t, err)
	require.Equal(t, r, got)
	for n := range HeaderSize {
		_, err := ParseRequest(b[:n])
		require.ErrorIs(t, err, ErrRequest)
	}
}

func TestRequestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		change func(b []byte)
		want   error
		status Status
	}{
		"version":  {func(b []byte) { b[0] = 1 }, ErrRequest, StatusMalformed},
		"op":       {func(b []byte) { b[1] = byte(reductions) }, ErrRequest, StatusMalformed},
		"no-op":    {func(b []byte) { b[1] = byte(NoOp | Exclusive) }, ErrRequest, StatusMalformed},
		"type":     {func(b []byte) { b[2] = 7 }, ErrRequest, StatusMalformed},
		"no type":  {func(b []byte) { b[2] = 0 }, ErrRequest, StatusMalformed},
		"no order": {func(b []byte) { b[3] = 0 }, ErrRequest, StatusMalformed},
		"order":    {func(b []byte) { b[3] = 3 - order() }, ErrOrder, StatusOrder},
		"nothing":  {func(b []byte) { b[4] = 0 }, ErrRequest, StatusMalformed},
		"too many": {func(b []byte) { b[5] = 16 }, ErrRequest, StatusMalformed},
		"wraps":    {func(b []byte) { b[7] = 0x20 }, ErrRequest, StatusMalformed},
		"epoch":    {func(b []byte) { clear(b[12:20]) }, ErrRequest, StatusMalformed},
		"reserved": {func(b []byte) { b[23] = 1 }, ErrRequest, StatusMalformed},
		"address":  {func(b []byte) { b[24] = 4 }, ErrAlign, StatusAlign},
	} {
		r := sample()
		b := r.Append(nil)
		c.change(b)
		_, err := ParseRequest(b)
		require.ErrorIs(t, err, c.want, name)
		require.Equal(t, c.status, StatusOf(err), name)
		require.Error(t, c.status.Err())
	}
	require.NoError(t, StatusOf(nil).Err())
	require.ErrorIs(t, Status(200).Err(), fabric.ErrRemoteInvalid)
}

func FuzzParseRequest(f *testing.F) {
	r := sample()
	f.Add(r.Append(nil))
	f.Add(make([]byte, HeaderSize))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := ParseRequest(b)
		if err != nil {
			require.Equal(t, Request{}, r)
			return
		}
		require.Equal(t, b[:HeaderSize], r.Append(nil))
		require.LessOrEqual(t, int(r.Count)*r.Type.Size(), MaxData)
	})
}

func domain(t *testing.T) *mr.Domain {
	l, err := sim.NewNetwork(sim.Options{}).NewLink()
	require.NoError(t, err)
	d, err := mr.NewDomain(mr.Rail{Link: l, Number: 3})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, d.Close())
		require.NoError(t, l.Close())
	})
	return d
}

// What is served changes the memory that the key covers, with the rights that it
// needs, and nothing else; what is refused changes nothing.
func TestServe(t *testing.T) {
	d := domain(t)
	mem := testutil.Scratch(t, 4096)
	g := testutil.Guard(mem, 64, 1024)
	clear(g.Buf)
	reg, err := d.Register(g.Buf, fabric.AccessAll)
	require.NoError(t, err)
	weak, err := d.Register(g.Buf, fabric.AccessRemoteWrite|fabric.AccessLocalWrite)
	require.NoError(t, err)
	k := reg.Key()
	slot := make([]byte, SlotSize)
	put := func(r Request, values ...uint64) {
		b := r.Append(slot[:0])
		for _, v := range values {
			b = appendNative(b, v)
		}
	}
	r := Request{Op: Sum, Type: Uint64, Count: 2, Ref: k.Ref, Addr: k.Addr + 1008}
	put(r, 5, 6)
	require.NoError(t, Serve(d, slot))
	require.NoError(t, Serve(d, slot))
	require.Equal(t, appendNative(appendNative(nil, 10), 12), g.Buf[1008:])
	for _, c := range []struct {
		change func(r *Request)
		want   error
	}{
		{func(r *Request) { r.Addr += 8 }, mr.ErrBounds},
		{func(r *Request) { r.Addr = k.Addr - 8 }, mr.ErrBounds},
		{func(r *Request) { r.Addr = math.MaxUint64 - 7 }, mr.ErrBounds},
		{func(r *Request) { r.Ref.Epoch++ }, mr.ErrStale},
		{func(r *Request) { r.Ref.Slot += 9 }, mr.ErrStale},
		{func(r *Request) { r.Ref = weak.Key().Ref }, mr.ErrRights},
		{func(r *Request) { r.Count = 200 }, mr.ErrBounds},
	} {
		bad := r
		c.change(&bad)
		put(bad, 1, 1)
		err := Serve(d, slot)
		require.ErrorIs(t, err, c.want)
		require.Equal(t, StatusRefused, StatusOf(err))
	}
	require.NoError(t, g.Check())
	require.Equal(t, appendNative(appendNative(nil, 10), 12), g.Buf[1008:])
	require.Equal(t, make([]byte, 1008), g.Buf[:1008])
	require.NoError(t, weak.Close())
	require.NoError(t, reg.Close(), "nothing is held")
	put(r, 5, 6)
	require.ErrorIs(t, Serve(d, slot), mr.ErrStale)
}

func TestServeAllocatesNothing(t *testing.T) {
	d := domain(t)
	reg, err := d.Alloc(4096, fabric.AccessAll, 0)
	require.NoError(t, err)
	slot := make([]byte, SlotSize)
	for op := range reductions {
		for ty := Int32; ty <= Float64; ty++ {
			if !op.Takes(ty) {
				continue
			}
			r := Request{Op: op, Type: ty, Count: 100, Ref: reg.Key().Ref, Addr: reg.Key().Addr}
			r.Append(slot[:0])
			require.Zero(t, testing.AllocsPerRun(10, func() {
				if Serve(d, slot) != nil {
					panic("refused")
				}
			}))
		}
	}
}

// Elements of 4 bytes are combined as one by one, wherever they begin and however many they
// are, and nothing beside them changes.
func TestReduceOfShortElements(t *testing.T) {
	for _, ty := range []Type{Int32, Uint32, Float32} {
		for r := range reductions {
			if !r.Takes(ty) {
				continue
			}
			for off := 0; off <= 4; off += 4 {
				for n := range 6 {
					dst, src, want := testutil.Scratch(t, 40), make([]byte, 4*n), make([]byte, 40)
					for i := 0; i < 40; i += 4 {
						binary.NativeEndian.PutUint32(want[i:], math.Float32bits(float32(i)+1.5))
					}
					for i := range n {
						binary.NativeEndian.PutUint32(src[4*i:], math.Float32bits(float32(7*i)-10))
					}
					copy(dst, want)
					Reduce(r, ty, dst[8+off:][:4*n], src)
					for i := range n {
						at := want[8+off+4*i:]
						v := combineBits(r, ty, uint64(binary.NativeEndian.Uint32(at)), uint64(binary.NativeEndian.Uint32(src[4*i:])))
						binary.NativeEndian.PutUint32(at, uint32(v))
					}
					require.Equal(t, want, dst[:40], "%v of type %d, %d elements from %d", r, ty, n, off)
				}
			}
		}
	}
}

// Reducers of short elements and a processor's atomics of that size lose nothing.
func TestReduceOfShortElementsIsAtomic(t *testing.T) {
	const rounds = 2000
	mem, one := testutil.Scratch(t, 16), appendNative(nil, 1<<32|1)
	one = append(one, one[:4]...)
	var wg sync.WaitGroup
	for off := 0; off <= 4; off += 4 {
		wg.Go(func() {
			for range rounds {
				Reduce(Sum, Int32, mem[off:][:12], one)
			}
		})
	}
	wg.Go(func() {
		for i := range 4 * rounds {
			atomic.AddUint32(word32(mem[4*(i%4):]), 1)
		}
	})
	wg.Wait()
	for i, want := range []uint32{2, 3, 3, 2} {
		require.Equal(t, want*rounds, binary.NativeEndian.Uint32(mem[4*i:]), "element %d", i)
	}
}

// Two reducers and a processor's atomics on the same words lose nothing.
func TestReduceIsAtomic(t *testing.T) {
	mem := testutil.Scratch(t, 64)
	var one [64]byte
	for i := range 8 {
		copy(one[8*i:], appendNative(nil, 1))
	}
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for range 2000 {
				Reduce(Sum, Int64, mem, one[:])
			}
		})
	}
	wg.Wait()
	for i := range 8 {
		require.EqualValues(t, 6000, testutil.Load64(mem[8*i:]))
	}
}

// What a target refuses is an error that applications know, whatever number it says.
func TestErrorsOfStatuses(t *testing.T) {
	for s := range 256 {
		err := Status(s).Err()
		known := false
		for _, is := range []error{fabric.ErrRemoteAccess, fabric.ErrRemoteInvalid, fabric.ErrNotSupported} {
			known = known || errors.Is(err, is)
		}
		require.Equal(t, s != int(StatusOK), known, "%d: %v", s, err)
		if s <= int(StatusOrder) {
			require.Equal(t, Status(s), StatusOf(err))
		}
	}
}
