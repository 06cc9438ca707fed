package rdv

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/sim"
	"github.com/seed33544411/rma/internal/testutil"
	"github.com/seed33544411/rma/scatter"
)

// railReader is a Handler that has one destination and reads over several connections.
type railReader struct {
	quiet
	mem   *memory
	takes bool         // ReadRails
	begun func(Handle) // called within ReadRails
	keys  []RailKeys
	from  []scatter.Region
}

func (r *railReader) ReadRails(h Handle, src scatter.Region, keys RailKeys) bool {
	r.keys, r.from = append(r.keys, keys), append(r.from, src)
	if r.takes && r.begun != nil {
		r.begun(h)
	}
	return r.takes
}

const railedSize = 4096

// announced returns two sides, the first of which has announced a message with keys on two
// further connections, for which the second has a destination.
func announced(t *testing.T) (a, b *side, ha *quiet, hb *railReader) {
	la, lb := simLinks(sim.Options{})(t)
	src := newMemory(t, la, 1, railedSize)
	testutil.Fill(src.mem, 3, 0)
	ha, hb = wait(), &railReader{quiet: quiet{verdict: Take}, mem: newMemory(t, lb, 1, railedSize), takes: true}
	hb.dst = []fabric.SGE{fabric.NewSGE(hb.mem.mem, hb.mem.reg.LKey())}
	a, b = pairOn(t, la, lb, ha, hb, Options{}, Options{Rails: true})
	require.True(t, a.ch.ReadsRails())
	require.False(t, b.ch.ReadsRails())
	k := src.reg.Key()
	d := scatter.Descriptor{
		Messages: []scatter.Message{{Pos: 1, Size: railedSize}},
		Regions:  []scatter.Region{{Addr: k.Addr, Len: railedSize, RKey: k.RKey}},
	}
	_, res, err := a.ch.SendRails(&d, &RailKeys{Has: 0b1010, RKeys: [MaxRails]uint32{1: 11, 3: 33}}, 0, 1)
	require.NoError(t, err)
	require.Equal(t, Accepted, res)
	require.NoError(t, a.ch.Flush())
	return a, b, ha, hb
}

// A message is read by the layer above, at once or later, or by the channel if that declines or
// fails.
func TestReadOverRails(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		takes, later bool
		err          error
		reads        uint64 // by the channel
	}{
		"at once": {takes: true}, "later": {takes: true, later: true}, "declined": {reads: 1},
		"fails at once": {takes: true, err: errors.New("x"), reads: 1}, "fails later": {takes: true, later: true, err: errors.New("x"), reads: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, b, ha, hb := announced(t)
			hb.takes = c.takes
			var due []Handle
			end := func(h Handle) {
				if c.err == nil {
					testutil.Fill(hb.mem.mem, 3, 0)
				}
				b.ch.Fetched(h, c.err)
			}
			if hb.begun = end; c.later {
				hb.begun = func(h Handle) { due = append(due, h) }
			}
			b.until(t, "the announcement", func() bool { return len(hb.keys) > 0 })
			require.Equal(t, []RailKeys{{Has: 0b1010, RKeys: [MaxRails]uint32{1: 11, 3: 33}}}, hb.keys)
			require.EqualValues(t, railedSize, hb.from[0].Len)
			for _, h := range due {
				for range 8 {
					require.NoError(t, b.turn())
				}
				require.Empty(t, hb.received)
				require.False(t, b.ch.Idle())
				end(h)
				b.ch.Fetched(h, nil) // once more: has no effect
			}
			b.until(t, "the message", func() bool { return len(hb.received) > 0 })
			require.NoError(t, hb.received[0])
			require.NoError(t, testutil.Verify(hb.mem.mem, 3, 0))
			a.until(t, "the sender's end", func() bool { require.NoError(t, b.turn()); return len(ha.sent) > 0 })
			require.NoError(t, ha.sent[0])
			require.Equal(t, c.reads, b.ch.Stats().Reads)
			require.Equal(t, 1-c.reads, b.ch.Stats().OverRails)
			require.Len(t, hb.received, 1)
			require.True(t, b.ch.Idle())
		})
	}
}

// A channel that has failed ends the message when the layer above has ended its reads, and one
// that is closed does not hear of them.
func TestReadOverRailsOutlivesTheChannel(t *testing.T) {
	t.Parallel()
	for _, closed := range []bool{false, true} {
		_, b, _, hb := announced(t)
		var due []Handle
		hb.begun = func(h Handle) { due = append(due, h) }
		b.until(t, "the announcement", func() bool { return len(due) > 0 })
		why := errors.New("the end")
		require.NoError(t, b.ep.Close())
		b.ch.Sever(why)
		require.Empty(t, hb.received, "the layer above may still write there")
		if closed {
			b.poll()
			require.NoError(t, b.ch.Close())
			require.Len(t, hb.received, 1)
		}
		b.ch.Fetched(due[0], errors.New("flushed"))
		require.Len(t, hb.received, 1)
		require.ErrorIs(t, hb.received[0], why)
	}
}

// Keys that cannot be, or that nobody wants, end the channel.
func TestHostileRailKeys(t *testing.T) {
	t.Parallel()
	good := RailKeys{Has: 0b0010, RKeys: [MaxRails]uint32{1: 5}}
	two := scatter.Descriptor{
		Messages: []scatter.Message{{Pos: 1, Size: 4}, {Pos: 2, Size: 4}},
		Regions:  []scatter.Region{{Addr: 0x1000, Len: 8, RKey: 1}},
	}
	twice, err := two.Append(nil)
	require.NoError(t, err)
	keys := good.append(nil)
	spoilt := func(i int, v byte) []byte {
		k := good.append(oneMessage(1))
		k[len(k)-railKeysSize+i] = v
		return k
	}
	for name, c := range map[string]struct {
		payload []byte
		unasked bool
	}{
		"unasked": {good.append(oneMessage(1)), true}, "two messages": {append(twice, keys...), false},
		"none": {spoilt(0, 0), false}, "of the endpoint": {spoilt(0, 3), false}, "beyond": {spoilt(0, 1<<MaxRails|2), false},
		"reserved": {spoilt(2, 1), false}, "not announced": {spoilt(8, 1), false},
		"short": {good.append(oneMessage(1))[:len(oneMessage(1))+railKeysSize-1], false}, "long": {append(good.append(oneMessage(1)), 0), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := &railReader{quiet: quiet{verdict: Take}}
			victim, evil := pair(t, simLinks(sim.Options{}), h, wait(), Options{Rails: !c.unasked}, Options{})
			evil.inject(t, KindRTS, makeID(0, 1), 0, c.payload)
			testutil.Eventually(t, testutil.Limit, func() bool { return victim.turn() != nil }, "the end")
			require.ErrorIs(t, victim.ch.Err(), ErrMessage)
			require.Empty(t, h.keys)
			require.Empty(t, h.met)
		})
	}
}
