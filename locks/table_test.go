package locks

import (
	"encoding/hex"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

var golden = map[string]frame{
	"0201000000000000" + "0700000000000000" + "0900000000000080": {kind: kindLock, serial: 7, key: 1<<63 + 9},
	"0201030000000000" + "0700000000000000" + "0000000000000000": {kind: kindLock, mode: modeShared | modeTry, serial: 7},
	"0202000000000000" + "ffffffffffffffff" + "0000000000000000": {kind: kindUnlock, serial: 1<<64 - 1},
	"0206000003000000" + "0100000000000000" + "0000000000000000": {kind: kindBroken, rank: 3, serial: 1},
	"0209000000000000" + "0c00000000000000" + "0000000000000000": {kind: kindForgotten, serial: 12},
}

func TestGoldenFrames(t *testing.T) {
	for text, want := range golden {
		var b [frameSize]byte
		want.put(&b)
		require.Equal(t, text, hex.EncodeToString(b[:]))
		got, err := parse(b[:])
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

func FuzzFrame(f *testing.F) {
	for text := range golden {
		b, _ := hex.DecodeString(text)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := parse(b)
		if err != nil {
			require.ErrorIs(t, err, ErrProtocol)
			return
		}
		var again [frameSize]byte
		x.put(&again)
		require.Equal(t, b, again[:])
	})
}

// run executes a script of 4-byte steps (what, rank, serial, key) on a table, and checks
// after each that no lock is held by a writer and another rank, that every request is in
// one place, and that no request waits for a lock that admits it.
func run(t *testing.T, script []byte) {
	tb := newTable()
	granted := map[claim]bool{}
	var epochs [4]int // of the ranks' connections
	for ; len(script) >= 4; script = script[4:] {
		rank, serial := int(script[1]%4), uint64(script[2]%16)+1
		var out []outgoing
		switch what := script[0] % 8; what {
		case 0, 1, 2, 3, 4: // modes 0 … modeRecover
			out = tb.handle(rank, epochs[rank], frame{kind: kindLock, mode: mode(what), serial: serial, key: uint64(script[3] % 3)}, nil)
		case 5:
			out = tb.handle(rank, epochs[rank], frame{kind: kindUnlock, serial: serial}, nil)
		case 6:
			out = tb.handle(rank, epochs[rank], frame{kind: kindCancel, serial: serial}, nil)
		case 7:
			if script[3]&1 == 0 {
				epochs[rank]++ // lost, and made again: the loss is noticed later
				continue
			}
			before, last := maps.Clone(tb.asked), uint64(0)
			out = tb.lost(rank, epochs[rank], nil)
			for c, e := range before {
				_, is := tb.asked[c]
				old := c.rank == rank && e.epoch < epochs[rank]
				require.False(t, is && old, "a request over a connection that was lost")
				if old {
					last = max(last, c.serial)
				}
				if !is && !old { // of a lock that is broken now
					require.Contains(t, out, c.answer(kindBroken, rank))
				}
			}
			require.Equal(t, last > 0, slices.Contains(out, outgoing{rank, frame{kind: kindForgotten, serial: last}}))
		}
		for _, a := range out {
			if c := (claim{a.to, a.serial}); a.kind == kindGranted {
				require.False(t, granted[c], "granted once")
				granted[c] = true
			}
		}
		inUse, holders, broken := 0, 0, 0
		for key, l := range tb.locks {
			require.True(t, l.shared || len(l.holders) < 2, "a writer is alone")
			require.True(t, len(l.holders)+len(l.queue) > 0 || l.broken >= 0, "a lock that is not in use")
			require.True(t, len(l.queue) == 0 || !l.admits(l.queue[0]), "the next could be granted")
			require.True(t, l.broken < 0 || len(l.holders)+len(l.queue) == 0, "broken and held")
			for _, c := range l.holders {
				require.True(t, granted[c], "it does not know that it holds the lock")
				require.Equal(t, key, tb.asked[c].key)
			}
			for _, w := range l.queue {
				require.Equal(t, key, tb.asked[w.claim].key)
			}
			if l.broken >= 0 {
				broken++
			}
			holders += len(l.holders)
			inUse += len(l.holders) + len(l.queue)
		}
		require.Equal(t, len(tb.asked), inUse)
		total := 0
		for rank, n := range tb.count {
			require.Positive(t, n, "rank %d", rank)
			total += n
		}
		require.Equal(t, inUse+broken, total)
		for c := range granted {
			if _, is := tb.asked[c]; !is {
				delete(granted, c) // released
			}
		}
		require.Len(t, granted, holders)
	}
}

func TestTable(t *testing.T) {
	for seed := range 50 {
		rng := rand.New(rand.NewPCG(uint64(seed), 0))
		script := make([]byte, 4*400)
		for i := range script {
			script[i] = byte(rng.Uint32())
		}
		run(t, script)
	}
}

func FuzzTable(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 1, 1, 1, 0, 7, 0, 0, 0, 0, 0, 3, 0, 7, 0, 0, 1, 4, 2, 2, 0})
	f.Fuzz(run)
}

// A home keeps at most maxRequests requests and broken locks of a peer.
func TestRequestsAreBounded(t *testing.T) {
	tb := newTable()
	for i := range uint64(maxRequests) {
		require.Equal(t, kindGranted, tb.handle(1, 0, frame{kind: kindLock, serial: i + 1, key: i}, nil)[0].kind)
	}
	require.Equal(t, kindFull, tb.handle(1, 0, frame{kind: kindLock, serial: 1 << 40}, nil)[0].kind)
	require.Equal(t, kindGranted, tb.handle(2, 0, frame{kind: kindLock, serial: 1, key: 1 << 40}, nil)[0].kind)
	tb.lost(1, 1, nil)
	require.Len(t, tb.asked, 1)
	require.Len(t, tb.locks, maxRequests+1, "broken ones, and rank 2's")
	require.Equal(t, kindFull, tb.handle(1, 1, frame{kind: kindLock, serial: 1 << 41, key: 1 << 41}, nil)[0].kind)
	for rank := range 2 { // both recover one
		f := frame{kind: kindLock, mode: modeRecover, serial: 1 << 42, key: uint64(rank)}
		require.Equal(t, kindGranted, tb.handle(rank, 1, f, nil)[0].kind)
	}
	require.Equal(t, kindGranted, tb.handle(1, 1, frame{kind: kindLock, serial: 1 << 41, key: 1 << 41}, nil)[0].kind)
	require.Equal(t, kindFull, tb.handle(1, 1, frame{kind: kindLock, serial: 1 << 43, key: 1 << 43}, nil)[0].kind)
}

// A rank without requests whose losses are told again and again, as frames to it fail, costs no look at all locks.
func TestLossesOfARankWithBrokenLocks(t *testing.T) {
	tb := newTable()
	tb.handle(2, 1, frame{kind: kindLock, serial: 1, key: 1}, nil)
	tb.lost(2, 2, nil)
	for i := range uint64(1000) {
		tb.handle(1, 1, frame{kind: kindLock, serial: i + 1, key: i + 2}, nil)
	}
	tb.locks[1<<40] = nil // to look at it would crash
	require.Empty(t, tb.lost(2, 3, nil))
	delete(tb.locks, 1<<40)
	f := frame{kind: kindLock, mode: modeRecover, serial: 5000, key: 1}
	require.Equal(t, kindGranted, tb.handle(1, 1, f, nil)[0].kind)
	require.Empty(t, tb.broke)
	require.Zero(t, tb.count[2])
}
