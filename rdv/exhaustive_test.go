package rdv

import (
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/sim"
	"github.com/seed33544411/rma/internal/testutil"
	"github.com/seed33544411/rma/scatter"
)

// duel is two channels and one thing that happens between them, in every order
// of the steps of both sides.
type duel struct {
	t        *testing.T
	s, r     *side // S has the data, R wants it
	hs, hr   *quiet
	src, dst *memory
	id       ID // of S's transfer, or of R's advert
	begun    bool
	asked    bool // R has revoked
	refused  int  // messages refused by R
	accepted int
	wrote    bool
	declined bool
}

const duelBytes = 600

// action is a step; false: it makes no sense now, and the script is the same as
// one without it.
type action struct {
	name string
	do   func(d *duel) bool
}

func stepOf(name string, side func(*duel) *side, poll bool) action {
	if poll {
		return action{name + ".poll", func(d *duel) bool { side(d).poll(); return true }}
	}
	return action{name + ".progress", func(d *duel) bool {
		_, err := side(d).ch.Progress()
		require.NoError(d.t, err)
		return true
	}}
}

func sender(d *duel) *side   { return d.s }
func receiver(d *duel) *side { return d.r }

var engines = []action{stepOf("S", sender, true), stepOf("S", sender, false), stepOf("R", receiver, true), stepOf("R", receiver, false)}

// onMessage calls f for the first message that R has left for later.
func onMessage(f func(d *duel, m Incoming)) func(*duel) bool {
	return func(d *duel) bool {
		k := d.accepted + d.refused
		if k >= len(d.hr.met) || slices.Contains(d.hr.ended, d.hr.met[k].Handle) {
			return false
		}
		f(d, d.hr.met[k])
		return true
	}
}

var (
	accept = action{"R.accept", onMessage(func(d *duel, m Incoming) {
		off := int(m.Pos)
		d.accepted++
		err := d.r.ch.Accept(m.Handle, []fabric.SGE{fabric.NewSGE(d.dst.mem[off:][:m.Size], d.dst.reg.LKey())})
		require.NoError(d.t, err)
	})}
	refuse = action{"R.refuse", onMessage(func(d *duel, m Incoming) {
		d.refused++
		ok, err := d.r.ch.Refuse(m.Handle)
		require.NoError(d.t, err)
		require.True(d.t, ok)
	})}
)

// scenarios are what may happen.
var scenarios = map[string][]action{
	"batch": {{"S.send", func(d *duel) bool {
		if d.begun {
			return false
		}
		desc := scatter.Descriptor{
			Messages: []scatter.Message{{Pos: 0, Size: 200}, {Pos: 200, Size: 400}},
			Regions:  []scatter.Region{{Addr: d.src.reg.Addr(), Len: duelBytes, RKey: d.src.reg.Key().RKey}},
		}
		return d.begin(d.s.ch.Send(&desc, 0, 1))
	}}, accept, refuse},
	"offer": {{"S.offer", func(d *duel) bool {
		if d.begun {
			return false
		}
		return d.begin(d.s.ch.SendUnregistered(0, d.src.mem[:duelBytes], Copy, 0, 1))
	}}, accept, refuse},
	"advert": {{"R.advertise", func(d *duel) bool {
		if d.begun {
			return false
		}
		return d.begin(d.r.ch.Advertise(Want{Pos: 1}, fabric.RemoteKey{Addr: d.dst.reg.Addr(), Len: duelBytes, RKey: d.dst.reg.Key().RKey}, 1))
	}}, {"R.revoke", func(d *duel) bool {
		if !d.begun || d.asked || len(d.hr.filled) > 0 {
			return false
		}
		d.asked = true
		require.NoError(d.t, d.r.ch.Revoke(d.id))
		return true
	}}, {"S.write", func(d *duel) bool {
		if len(d.hs.adverts) == 0 || len(d.hs.revoked) > 0 || d.wrote || d.declined {
			return false
		}
		d.wrote = true
		piece := []fabric.SGE{fabric.NewSGE(d.src.mem[:duelBytes], d.src.reg.LKey())}
		res, err := d.s.ch.Write(d.hs.adverts[0].ID, 1, 2, piece, 1)
		require.NoError(d.t, err)
		require.Equal(d.t, Accepted, res)
		return true
	}}, {"S.decline", func(d *duel) bool {
		if len(d.hs.adverts) == 0 || len(d.hs.revoked) > 0 || d.wrote || d.declined {
			return false
		}
		d.declined = true
		require.NoError(d.t, d.s.ch.Decline(d.hs.adverts[0].ID, 0))
		return true
	}}},
}

func (d *duel) begin(id ID, res Result, err error) bool {
	require.NoError(d.t, err)
	require.Equal(d.t, Accepted, res)
	d.id, d.begun = id, true
	return true
}

// Every order of the steps of two sides up to a length, finished in one way:
// everything ends once, both sides agree on how, and the bytes are there.
func TestEveryInterleaving(t *testing.T) {
	t.Parallel()
	length := 6 // of 8, with 600 000 scripts each, nothing more is found
	if testing.Short() || testutil.Race {
		length = 5
	}
	for name, own := range scenarios {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := Options{Transfers: 1, Adverts: 1, Chunk: 256, FirstChunk: 200, Chunks: 2, Staging: 400}
			d := &duel{t: t, hs: wait(), hr: wait()}
			ls, lr := simLinks(sim.Options{Caps: sim.CapsLike("tcp")})(t)
			d.src, d.dst = newMemory(t, ls, 1, 4096), newMemory(t, lr, 1, 4096)
			testutil.Fill(d.src.mem, 5, 0)
			d.s, d.r = pairOn(t, ls, lr, d.hs, d.hr, o, o)

			all := append(append([]action{}, own...), engines...)
			script := make([]int, length)
			scripts := 0
			for {
				at := d.play(all, script)
				scripts++
				for at >= 0 && script[at] == len(all)-1 {
					at--
				}
				if at < 0 {
					break
				}
				script[at]++
				clear(script[at+1:])
			}
			t.Logf("%d scripts", scripts)
			require.Greater(t, scripts, 1000)
		})
	}
}

// play runs a script and what is needed to finish, and returns the index of the
// last action that made sense, or of the first that did not.
func (d *duel) play(all []action, script []int) int {
	*d.hs, *d.hr = quiet{verdict: Later}, quiet{verdict: Later}
	d.begun, d.asked, d.wrote, d.declined, d.refused, d.accepted = false, false, false, false, 0, 0
	last := len(script) - 1
	for i, k := range script {
		if !all[k].do(d) {
			last = i
			break
		}
	}
	for n := 0; !d.s.ch.Idle() || !d.r.ch.Idle(); n++ {
		accept.do(d)
		if len(d.hs.adverts) > 0 && len(d.hs.revoked) == 0 && !d.wrote && !d.declined {
			d.declined = true
			require.NoError(d.t, d.s.ch.Decline(d.hs.adverts[0].ID, 0))
		}
		for _, e := range engines {
			e.do(d)
		}
		require.Less(d.t, n, 200, "stuck after %v", script)
	}
	d.check()
	return last
}

func (d *duel) check() {
	if !d.begun {
		return
	}
	t := d.t
	if d.hr.filled != nil { // an advert
		require.Len(t, d.hr.filled, 1)
		switch err := d.hr.filled[0]; {
		case err == nil:
			require.True(t, d.wrote)
			require.Equal(t, uint32(duelBytes), d.hr.filledBytes[0])
			require.NoError(t, testutil.Verify(d.dst.mem[:duelBytes], 5, 0))
			require.Equal(t, []error{nil}, d.hs.sent)
		case errors.Is(err, ErrCancelled):
			require.True(t, d.asked)
		default:
			require.ErrorIs(t, err, ErrDeclined)
			require.True(t, d.declined)
		}
		require.Equal(t, d.wrote, d.hr.filled[0] == nil)
		clear(d.dst.mem[:duelBytes])
		return
	}
	require.Len(t, d.hs.sent, 1)
	require.Len(t, d.hr.received, len(d.hr.met)-d.refused)
	require.NoError(t, errors.Join(d.hr.received...))
	if err := d.hs.sent[0]; d.refused == 0 {
		require.NoError(t, err)
		require.NoError(t, testutil.Verify(d.dst.mem[:duelBytes], 5, 0))
	} else {
		require.ErrorIs(t, err, ErrRefused)
	}
	clear(d.dst.mem[:duelBytes])
}
