package main

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A slot is itself, free, or torn, wherever a write was cut and in whatever order its
// bytes came.
func TestSlotTorn(t *testing.T) {
	key := []byte("key")
	var old, next [slotSize]byte
	entry{version: 1, live: true, key: key, value: valueOf(key, 1)}.encode(old[:])
	entry{version: 2, live: true, key: key, value: valueOf(key, 5)}.encode(next[:])
	for _, before := range [][slotSize]byte{old, {}} {
		for n := range slotSize {
			for _, mix := range [][]byte{
				append(append([]byte{}, next[:n]...), before[n:]...),
				append(append([]byte{}, before[:n]...), next[n:]...),
			} {
				e, c := decode(mix)
				if c == whole {
					require.NoError(t, check(e.key, e.value))
					n := binary.LittleEndian.Uint64(e.value)
					require.Contains(t, [][2]uint64{{1, 1}, {2, 5}}, [2]uint64{e.version, n})
				}
			}
		}
	}
	for n := 1; n < slotHead; n++ {
		mix := old
		copy(mix[n:], next[n:])
		_, c := decode(mix[:])
		require.Equal(t, torn, c, "of which %d bytes are old", n)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(make([]byte, slotSize))
	var b [slotSize]byte
	entry{version: 7, live: true, key: []byte("k"), value: []byte("value")}.encode(b[:])
	f.Add(b[:])
	binary.LittleEndian.PutUint16(b[16:], 0xffff)
	f.Add(b[:])
	f.Fuzz(func(t *testing.T, slot []byte) {
		if len(slot) < slotSize {
			return
		}
		if e, c := decode(slot); c == whole {
			var again [slotSize]byte
			e.encode(again[:])
			back, c := decode(again[:])
			require.Equal(t, whole, c)
			require.Equal(t, e, back)
		}
	})
}

func FuzzRequest(f *testing.F) {
	f.Add(appendRequest(nil, opPut, []byte("k"), []byte("v")))
	f.Add(appendRequest(nil, opRemove, []byte("k"), nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if op, key, value, err := parseRequest(b); err == nil {
			require.NotEmpty(t, key)
			require.Equal(t, b, appendRequest(nil, op, key, value))
		} else {
			require.ErrorIs(t, err, errProtocol)
		}
	})
}

func TestAnswer(t *testing.T) {
	for _, want := range statuses {
		b := appendAnswer(nil, 42, want)
		v, err := parseAnswer(b)
		require.ErrorIs(t, err, want)
		require.EqualValues(t, 42, v)
		for n := range b {
			_, err := parseAnswer(b[:n])
			require.ErrorIs(t, err, errProtocol)
		}
	}
	_, err := parseAnswer(append([]byte{200}, make([]byte, 8)...))
	require.ErrorIs(t, err, errProtocol)
}

// A shard does what a map does, for a reader that has nothing but its memory; when it
// is full it says so and loses nothing.
func TestShardIsAMap(t *testing.T) {
	l := layout{servers: 1, size: 1, buckets: 11, clients: 1}
	s := shard{layout: l, mem: make([]byte, l.bytes(0))}
	get := func(key []byte) (string, bool) {
		_, home := l.home(key)
		for probe := range l.probes() {
			e, is := search(s.mem[l.bucket(home, probe):][:bucketSize], key)
			require.NotEqual(t, unclear, is)
			if is == found {
				return string(e.value), true
			}
			if is == absent {
				break
			}
		}
		return "", false
	}
	want, full := map[string]string{}, 0
	rng := newLoad(nil, 1, 1).rng
	for n := range 20000 {
		key := keyOf(rng.IntN(60))
		_, home := l.home(key)
		if _, in := want[string(key)]; in && rng.IntN(3) == 0 {
			_, err := s.remove(home, key)
			require.NoError(t, err)
			delete(want, string(key))
		} else {
			value := valueOf(key, uint64(n))
			_, err := s.put(home, key, value)
			if err == nil {
				want[string(key)] = string(value)
			} else {
				require.ErrorIs(t, err, errFull)
				require.False(t, in)
				full++
			}
		}
		value, in := get(key)
		was, in2 := want[string(key)]
		require.Equal(t, in2, in)
		require.Equal(t, was, value)
	}
	require.Positive(t, full)
	for k := range 60 {
		value, in := get(keyOf(k))
		was, in2 := want[string(keyOf(k))]
		require.Equal(t, in2, in)
		require.Equal(t, was, value)
	}
}

// Keys spread over ranks and buckets: none has twice its share.
func TestHome(t *testing.T) {
	l := layout{servers: 3, size: 4, buckets: 8, clients: 1}
	seen := map[string]int{}
	for k := range 24000 {
		rank, bucket := l.home(keyOf(k))
		require.True(t, l.serves(rank) && bucket >= 0 && bucket < l.buckets)
		seen[fmt.Sprint(rank, bucket)]++
	}
	require.Len(t, seen, 24)
	for at, n := range seen {
		require.InDelta(t, 1000, n, 200, at)
	}
}

// A time lies in its bin, bins are in order, and the widest are as narrow as promised.
func TestBins(t *testing.T) {
	for b := 1; b < bins; b++ {
		require.Greater(t, end(b), end(b-1))
		require.Equal(t, b, bin(end(b-1)), "the first time beyond the bin before")
		require.Equal(t, b, bin(end(b)-1))
		if b > 32 {
			require.LessOrEqual(t, float64(end(b)-end(b-1)), 0.0625*float64(end(b-1)))
		}
	}
	require.Zero(t, bin(-1))
	require.Equal(t, bins-1, bin(time.Hour))
	var c counts
	for n := range 1000 {
		c.read(time.Duration(n) * time.Microsecond)
	}
	require.InEpsilon(t, 500*time.Microsecond, quantile(c[:], 0.5), 0.07)
	require.InEpsilon(t, 990*time.Microsecond, quantile(c[:], 0.99), 0.07)
}
