package rma

import (
	"encoding/json"
	"math"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/testutil"
	"github.com/seed33544411/rma/internal/wireup"
	"github.com/seed33544411/rma/mr"
)

// The encoding is that of mr.Key, whose tests fix its bytes; this test fixes the numbers of
// links, which are part of it.
func TestKeyEncoding(t *testing.T) {
	require.Equal(t, map[string]uint8{"shm": 0, "ibv": 1, "tcp": 2, "sim": 3}, linkNumber)
	k := newKey(mr.Key{Addr: 4096, Len: 0x1122, Ref: mr.Ref{Slot: 5, Epoch: 1 << 32}, Rails: 1<<0 | 1<<2,
		RKeys: [mr.MaxRails]uint32{0xaabbccdd, 0, 0x11223344}})
	b := k.Append([]byte{0xee})
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
}

// Keys name their owner in a job of any size: 0 would name none.
func TestKeyNamesLastRank(t *testing.T) {
	require.EqualValues(t, wireup.MaxRanks, owner(wireup.MaxRanks-1))
}

func TestKeyMarshals(t *testing.T) {
	k := newKey(mr.Key{Addr: 4096, Len: 8, Ref: mr.Ref{Slot: 5, Epoch: 1 << 32}, Rails: 1, RKeys: [mr.MaxRails]uint32{7}})
	type config struct{ Key Key }
	text, err := json.Marshal(config{k})
	require.NoError(t, err)
	var got config
	require.NoError(t, json.Unmarshal(text, &got))
	require.Equal(t, k, got.Key)
	require.Contains(t, string(text), k.String())
	b, err := k.MarshalBinary()
	require.NoError(t, err)
	require.Len(t, b, KeySize)
	var again Key
	require.NoError(t, again.UnmarshalBinary(b))
	require.Equal(t, k, again)
	require.ErrorIs(t, again.UnmarshalBinary(b[1:]), ErrBadKey)
	require.ErrorIs(t, again.UnmarshalText([]byte("=")), ErrBadKey)
	require.ErrorIs(t, again.UnmarshalText([]byte("AAAA")), ErrBadKey)
	require.Equal(t, k, again, "unchanged by errors")
}

// A key is a value: parsing its text or its bytes gives an equal key, which still names the
// owner of the memory.
func TestKeyIsAValue(t *testing.T) {
	es := simulate(t, 2, "sim")
	ctx := testutil.Context(t, testutil.Limit)
	mems, keys := share(t, es, 64)
	require.True(t, mems[1].Key() == keys[1])
	var parsed Key
	require.NoError(t, parsed.UnmarshalText([]byte(keys[1].String())))
	require.True(t, parsed == keys[1])
	b, err := keys[1].MarshalBinary()
	require.NoError(t, err)
	parsed, err = ParseKey(b)
	require.NoError(t, err)
	require.True(t, parsed == keys[1])
	require.NoError(t, es[0].Peer(1).Put(mems[1].Key().At(8), mems[0].Slice(0, 8)).Wait(ctx))
	byRank := map[int]Key{1: parsed}
	require.NoError(t, es[0].Peer(1).Put(byRank[1].At(8), mems[0].Slice(0, 8)).Wait(ctx))
	require.ErrorIs(t, es[0].Peer(0).Put(parsed.At(8), mems[0].Slice(0, 8)).Wait(ctx), ErrWrongPeer)
}

// Contents without references are released; keys with the same contents that are parsed
// later work.
func TestKeysAreForgotten(t *testing.T) {
	known := func(k mr.Key) bool {
		keysInUse.Lock()
		defer keysInUse.Unlock()
		_, ok := keysInUse.byValue[k]
		return ok
	}
	k := mr.Key{Addr: 1, Len: 2, Ref: mr.Ref{Epoch: 3}, Rails: 1}
	held, again := newKey(k), newKey(k)
	require.True(t, held == again)
	at := held.At(5)
	runtime.GC()
	require.True(t, at.key == newKey(k), "in use as a place")
	testutil.Eventually(t, testutil.Limit, func() bool { runtime.GC(); return !known(k) }, "the key is forgotten")
	require.EqualValues(t, 2, newKey(k).Len())
}

func FuzzParseKey(f *testing.F) {
	k := newKey(mr.Key{Addr: 4096, Len: 8192, Ref: mr.Ref{Epoch: 1}, Rails: 3, RKeys: [mr.MaxRails]uint32{1, 2}})
	f.Add(k.Append(nil))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		k, err := ParseKey(b)
		if err != nil {
			require.ErrorIs(t, err, ErrBadKey)
			require.Equal(t, Key{}, k)
			return
		}
		require.Equal(t, b, k.Append(nil))
		require.LessOrEqual(t, k.value().Addr, k.value().Addr+k.value().Len)
		require.Equal(t, min(k.value().Len, math.MaxInt), uint64(k.Len()))
	})
}
