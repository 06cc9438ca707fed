package rdv

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/sim"
	"github.com/seed33544411/rma/scatter"
)

// fuzzed is a carrier that begins to read messages over several connections, and never ends.
type fuzzed struct {
	carrier
	reading []Handle
}

func (f *fuzzed) ReadRails(h Handle, _ scatter.Region, _ RailKeys) bool {
	f.reading = append(f.reading, h)
	return true
}

// FuzzControl plays arbitrary control messages to a side that has one of
// everything outstanding. It must not panic, end in a typed error or go on, and
// end everything exactly once.
func FuzzControl(f *testing.F) {
	message := func(k Kind, id ID, arg uint32, payload []byte) []byte {
		b := append([]byte{byte(k), byte(id), byte(id >> 16), byte(arg), byte(len(payload))}, payload...)
		return b
	}
	f.Add(message(KindRTS, makeID(0, 1), 0, oneMessage(1)))
	rails := RailKeys{Has: 0b0110, RKeys: [MaxRails]uint32{1: 5, 2: 6}}
	f.Add(message(KindRTS, makeID(0, 1), 0, rails.append(oneMessage(1))))
	f.Add(append(message(KindCTS, makeID(0, 1), 0, aCTS(64)), message(KindPlaced, makeID(0, 1), 0, nil)...))
	f.Add(append(message(KindReady, makeID(1, 1), 0, nil), message(KindAck, makeID(1, 1), 1, nil)...))
	f.Add(append(message(KindOffer, makeID(0, 1), 0, anOffer(9)), message(KindChunk, makeID(0, 1), 0, aChunk(1, 9))...))
	f.Add(append(message(KindAdvert, makeID(0, 1), 0, anAdvert(9)), message(KindRevoke, makeID(0, 1), 0, nil)...))
	f.Add(append(message(KindDone, makeID(0, 1), 9, aDone()), message(KindFIN, makeID(0, 1), 0, nil)...))
	share := appendShare(nil, sharing{addr: 0x1000, rkey: 1})
	f.Add(append(message(KindShare, makeID(1, 1), 4, share), message(KindDone, makeID(1, 1), 4, aDone())...))
	f.Add(append(message(KindCTS, makeID(0, 1), 0, aCTS(64)), message(KindFilled, makeID(0, 1), 0, nil)...))
	f.Fuzz(func(t *testing.T, script []byte) {
		o := Options{Transfers: 2, Adverts: 2, Messages: 4, Regions: 4, Chunks: 2}
		wants := o
		wants.Rails = true
		la, lb := simLinks(sim.Options{Caps: caps("ibv", mapped)})(t)
		mem := newMemory(t, la, 1, leastShared)
		hg := &fuzzed{carrier: carrier{quiet: quiet{verdict: Verdict(len(script) % 3)}, mem: mem, size: 64}}
		hg.dst = []fabric.SGE{fabric.NewSGE(mem.mem[:8], mem.reg.LKey())}
		good, evil := pairOn(t, la, lb, hg, wait(), wants, o)
		key := mem.reg.Key()
		d := scatter.Descriptor{
			Messages: []scatter.Message{{Size: 64}},
			Regions:  []scatter.Region{{Addr: key.Addr, Len: 64, RKey: key.RKey}},
		}
		_, _, err := good.ch.Send(&d, 0, 1)
		require.NoError(t, err)
		_, _, err = good.ch.SendUnregistered(0, make([]byte, 100), Copy, 0, 2)
		require.NoError(t, err)
		_, _, err = good.ch.Advertise(Want{Pos: 5}, fabric.RemoteKey{Addr: key.Addr, Len: 100, RKey: key.RKey}, 3)
		require.NoError(t, err)
		_, _, err = good.ch.Advertise(Want{Pos: 6}, key, 4)
		require.NoError(t, err)
		for len(script) >= 5 && good.ch.Err() == nil {
			n := min(int(script[4]), len(script)-5)
			evil.poll()
			_, _ = evil.ch.ring.Progress(true) // takes credit, looks at nothing
			for {
				l, _, ok, _ := evil.ch.ring.Lease()
				if !ok {
					break
				}
				_ = l.Release()
			}
			arg := uint32(script[3])
			if Kind(script[0]) == KindShare {
				arg <<= 16 // the bytes of a message that is large enough
			}
			if !evil.ch.send(Kind(script[0]), makeID(int(script[1]), uint16(script[2])), arg, script[5:5+n]) {
				// A read of what is not there has taken the endpoint down.
				require.True(t, good.ep.Err() != nil || evil.ep.Err() != nil)
				break
			}
			script = script[5+n:]
			_ = good.turn()
			_, _ = good.ch.ring.Progress(true)
		}
		if err := good.ch.Err(); err != nil && !typed(err) {
			t.Fatalf("untyped error: %v", err)
		}
		require.NoError(t, good.ep.Close())
		for range 8 {
			good.poll()
		}
		good.ch.Sever(nil)
		for _, h := range hg.reading {
			good.ch.Fetched(h, fabric.ErrFlushed)
		}
		require.Len(t, hg.sent, 2)
		require.Len(t, hg.filled, 2)
		require.LessOrEqual(t, len(hg.received), len(hg.met))
		if hg.verdict != Refuse {
			require.Len(t, hg.received, len(hg.met))
		}
	})
}
