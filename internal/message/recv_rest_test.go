package message

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric/sim"
	"github.com/seed33544411/rma/logp"
)

// restModes are the ways that messages lie in the ring.
var restModes = map[string]logp.Mode{"single": logp.Eager, "gather": logp.Gather}

// Messages that no receive can take stay in the ring, single ones and those of a gather, until
// a receive is posted that takes them, or that waits for a message behind them.
func TestMessagesRestInTheRing(t *testing.T) {
	t.Parallel()
	for name, mode := range restModes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRestRig(t, mode)
			r.send(1, 2, 3, 4, 5)
			first := r.recv(1)
			r.turns()
			require.Equal(t, 1, first.n)
			require.Zero(t, r.b.ch.Stats().Unexpected)

			second := r.recv(2)
			r.b.ch.PollLeft()
			require.Equal(t, []int{1, 2}, []int{second.n, int(second.tag)}, "without a round of polls")
			require.Zero(t, r.b.ch.Stats().Unexpected)
			require.False(t, r.b.ch.Waits(), "nothing to poll for without a receive")

			behind := r.recv(4)
			r.turns()
			require.Equal(t, 1, behind.n)
			require.EqualValues(t, 1, r.b.ch.Stats().Unexpected, "the third; the last one rests")
			third, last := r.recv(3), r.recv(5)
			r.turns()
			require.Equal(t, []int{1, 1}, []int{third.n, last.n})
			require.EqualValues(t, 1, r.b.ch.Stats().Unexpected)
		})
	}
}

// Others may need the room of a message, or what lies behind it: it is copied after a few rounds of
// polls, or when a receive from any rank is posted.
func TestMessagesDoNotRestForLong(t *testing.T) {
	t.Parallel()
	for name, mode := range restModes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRestRig(t, mode)
			first := r.recv(1)
			r.send(1, 2, 3)
			require.Equal(t, 1, first.n)
			r.turns()
			require.Zero(t, r.b.ch.Stats().Unexpected)
			for turns := 0; r.b.ch.Stats().Unexpected == 0; turns++ {
				require.Less(t, turns, restTurns)
				did, more, err := r.b.ch.Progress()
				require.NoError(t, err)
				require.True(t, did)
				require.True(t, more || r.b.ch.Stats().Unexpected > 0, "somebody must poll again")
			}
			require.EqualValues(t, 2, r.b.ch.Stats().Unexpected)
			_, more, err := r.b.ch.Progress()
			require.NoError(t, err)
			require.False(t, more)

			r.send(4)
			require.EqualValues(t, 3, r.b.ch.Stats().Unexpected, "no receives since then")
		})
	}
	t.Run("any rank", func(t *testing.T) {
		t.Parallel()
		r := newRestRig(t, logp.Eager)
		r.shared.Post(&In{Buf: make([]byte, 1), Tag: 9, Done: &note{}})
		r.send(1, 2)
		require.EqualValues(t, 2, r.b.ch.Stats().Unexpected)
		r.shared.End(ErrClosed)
	})
}

type restRig struct {
	t      *testing.T
	a, b   *side
	shared Shared
}

func newRestRig(t *testing.T, mode logp.Mode) *restRig {
	r := &restRig{t: t}
	o := Options{Policy: logp.Policy{Forced: true, Mode: mode}}
	to := o
	to.Shared = &r.shared
	r.a, r.b = pair(t, simLinks(sim.Options{Caps: sim.CapsLike("shm")}), 0, o, to)
	return r
}

func (r *restRig) send(tags ...uint32) {
	for _, tag := range tags {
		r.a.ch.Send(&Out{Data: []byte{byte(tag)}, Tag: tag})
	}
	r.turns()
}

func (r *restRig) recv(tag uint32) *note {
	n := &note{}
	r.b.ch.Recv(&In{Buf: make([]byte, 1), Tag: tag, Done: n})
	return n
}

func (r *restRig) turns() {
	for range restTurns / 4 {
		require.NoError(r.t, r.a.turn())
		require.NoError(r.t, r.b.turn())
	}
}
