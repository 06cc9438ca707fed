package message

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/eager"
	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/sim"
	"github.com/seed33544411/rma/gather"
	"github.com/seed33544411/rma/rdv"
	"github.com/seed33544411/rma/scatter"
)

// attack plays a peer that keeps the rules of the rings and lies in what it puts
// there: script is a list of (kind, length, number, payload).
func attack(tb testing.TB, script []byte) (victim *side) {
	liar, victim := pair(tb, simLinks(sim.Options{}), 1<<16, Options{}, Options{})
	victim.ch.advertiseFrom, victim.ch.advertisePrivate, victim.ch.model.writeFrom, victim.ch.advertised.outcomes.always = 100, 100, 100, true
	var got [8]note
	var sent []*note
	for i := range got {
		victim.ch.Recv(&In{Buf: make([]byte, 100*i), Any: i > 2, Done: &got[i]})
	}
	seq := uint64(1)
	for len(script) >= 4 {
		kind, n, at := script[0]&7, int(script[1]), script[2]
		data := script[4:][:min(n, len(script)-4)]
		if script[3]&1 == 0 {
			seq += uint64(at & 3)
		}
		script = script[4+len(data):]
		switch {
		case kind < 4:
			_, _ = liar.ch.ring.Send(eager.Envelope{Kind: kind, HasMeta: at&128 == 0, Meta: meta(uint32(at&3), seq)}, data)
		case kind == 4 && len(data) > 0: // a gather whose header is right
			p := gather.NewPacker(liar.ch.ring.GatherLimits(eager.Envelope{}), -1)
			half := len(data) / 2
			if _, err := p.Pack([]gather.Message{{Data: data[:half], At: seq}, {Data: data[half:], At: seq + uint64(at)}}); err == nil {
				_, _, _ = liar.ch.ring.StageVec(eager.Envelope{Kind: kindGather + at&1}, p.Pieces())
				_, _ = liar.ch.ring.Flush()
			}
		case kind == 6: // an advert, for a message that the victim is about to send
			w := rdv.Want{Pos: seq + uint64(at&3) - 1, Tag: uint32(at & 4), Note: uint32(at&8)<<28 | uint32(at>>4)}
			_, _, _ = liar.ch.rendezvous.Advertise(w, fabric.RemoteKey{Addr: liar.reg.Addr(), Len: uint64(n), RKey: liar.reg.Key().RKey}, liar.ch.advertised.put(&In{}))
			k := &note{}
			sent = append(sent, k)
			victim.ch.Send(&Out{Data: victim.reg.Bytes()[:120], LKey: victim.reg.LKey(), RKey: victim.reg.Key().RKey, Registered: true, Tag: uint32(at & 4), Done: k})
		case kind == 7: // an answer to one of the victim's
			if open := liar.ch.dests.open; len(open) > 0 {
				id := open[int(at)%len(open)].id
				if n&1 == 0 {
					_ = liar.ch.rendezvous.Decline(id, uint32(n)<<24)
				} else {
					_, _ = liar.ch.rendezvous.Write(id, seq, uint32(at&3), []fabric.SGE{fabric.NewSGE(liar.reg.Bytes()[:n], liar.reg.LKey())}, liar.ch.groups.put(nil))
				}
				liar.ch.dests.open = slices.DeleteFunc(open, func(x destination) bool { return x.id == id })
			}
		default:
			d := scatter.Descriptor{Messages: []scatter.Message{{Pos: seq, Size: uint32(n)}}}
			if n > 0 {
				d.Regions = []scatter.Region{{Addr: liar.reg.Addr() + uint64(at), Len: uint32(n), RKey: liar.reg.Key().RKey + uint32(at>>7)}}
			}
			_, _, _ = liar.ch.rendezvous.Send(&d, uint32(at&1), liar.ch.groups.put(nil))
		}
		seq++
		for range 4 {
			liar.poll()
			_, _ = liar.ch.rendezvous.Progress()
			_, _ = liar.ch.ring.Progress(false)
			_ = victim.turn()
		}
	}
	for i := range got {
		require.LessOrEqual(tb, got[i].n, 1)
	}
	for _, k := range sent {
		require.LessOrEqual(tb, k.n, 1)
	}
	return victim
}

func TestLies(t *testing.T) {
	t.Parallel()
	num := func(b ...byte) []byte { return b }
	for name, script := range map[string][]byte{
		"number of the past":  append(num(kindPlain, 1, 0, 1, 'x'), num(kindPlain, 1, 0, 1, 'y', 0, 0, 0, 0)...),
		"unknown kind":        num(0, 1, 0, 1, 'x'),
		"no number":           num(kindPlain, 1, 128, 1, 'x'),
		"gather that is none": num(kindGather, 3, 128, 1, 1, 2, 3),
		"tags that are none":  num(4, 6, 1, 1, 9, 9, 9, 1, 2, 3),
	} {
		t.Run(name, func(t *testing.T) {
			v := attack(t, script)
			if name == "number of the past" {
				return // numbers go on in this script: see below
			}
			require.ErrorIs(t, v.ch.Err(), ErrPeer)
		})
	}
}

// A number that was used already.
func TestNumbersGoOn(t *testing.T) {
	t.Parallel()
	liar, victim := pair(t, simLinks(sim.Options{}), 64, Options{}, Options{})
	var got, none note
	for _, n := range []*note{&got, &none} {
		victim.ch.Recv(&In{Buf: make([]byte, 8), Any: true, Done: n})
	}
	for range 2 {
		_, err := liar.ch.ring.Send(eager.Envelope{Kind: kindPlain, HasMeta: true, Meta: meta(0, 1)}, []byte{1})
		require.NoError(t, err)
	}
	_ = victim.turn()
	_ = victim.turn()
	require.Equal(t, 1, got.n)
	var e *SequenceError
	require.ErrorAs(t, victim.ch.Err(), &e)
	require.ErrorIs(t, e, ErrPeer)
	require.Contains(t, e.Error(), "message 1 in the ring, expected 2 or later")
}

func TestSetupChecks(t *testing.T) {
	t.Parallel()
	a, _ := pair(t, simLinks(sim.Options{}), 64, Options{}, Options{})
	good := a.ch.Setup()
	_, _, err := parseSetup(good)
	require.NoError(t, err)
	for n := range good {
		_, _, err := parseSetup(good[:n])
		require.ErrorIs(t, err, ErrSetup, "%d bytes", n)
	}
	_, _, err = parseSetup(append(good[:len(good):len(good)], 0))
	require.ErrorIs(t, err, ErrSetup)
	_, _, err = parseSetup(append([]byte{setupVersion + 1}, good[1:]...))
	require.ErrorIs(t, err, ErrSetup)
}

func FuzzLies(f *testing.F) {
	f.Add([]byte{kindPlain, 3, 0, 1, 'a', 'b', 'c', 4, 8, 1, 1, 1, 2, 3, 4, 5, 6, 7, 8, 5, 9, 0, 1})
	f.Add([]byte{6, 200, 0, 1, 6, 250, 1, 1, 7, 99, 3, 1, 7, 128, 0, 1, 7, 101, 2, 0})
	f.Add([]byte{kindTagged, 6, 128, 1, 2, 0, 1, 0, 1, 9})
	f.Fuzz(func(t *testing.T, script []byte) { attack(t, script[:min(len(script), 400)]) })
}

func FuzzTags(f *testing.F) {
	f.Add([]byte{tagsSame, 5}, 3)
	f.Add(binary.AppendUvarint([]byte{tagsEach, 1}, 1<<32-1), 2)
	f.Fuzz(func(t *testing.T, b []byte, n int) {
		var r tagReader
		dst, err := r.reset(len(b))
		if err != nil {
			require.ErrorIs(t, err, ErrPeer)
			return
		}
		copy(dst, b)
		if err := r.open(); err != nil {
			require.ErrorIs(t, err, ErrPeer)
			return
		}
		for range min(max(n, 0), 1000) {
			if _, err := r.next(); err != nil {
				require.ErrorIs(t, err, ErrPeer)
				return
			}
		}
	})
}
