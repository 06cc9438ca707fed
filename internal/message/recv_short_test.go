package message

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric/sim"
	"github.com/seed33544411/rma/logp"
)

// One Poll delivers the short messages that have arrived alone, in order, up to the first
// that needs more: a receive with options, or one too short, or none.
func TestPollTakesWhatIsThere(t *testing.T) {
	o := Options{Policy: logp.Policy{Forced: true, Mode: logp.Eager}}
	a, b := pair(t, simLinks(sim.Options{Caps: sim.CapsLike("shm")}), 0, o, o)
	send := func(tags ...uint32) {
		for _, tag := range tags {
			var sent note
			a.ch.Send(&Out{Data: []byte{byte(tag)}, Tag: tag, Done: &sent})
			for sent.n == 0 {
				require.NoError(t, a.turn())
			}
		}
		for range 4 {
			a.poll()
			b.poll()
		}
	}
	var order []int
	recv := func(i int, in In) (*note, *In) {
		n := &note{after: func() { order = append(order, i) }}
		in.Done = n
		b.ch.Recv(&in)
		return n, &in
	}
	one := func() []byte { return make([]byte, 1) }

	n0, _ := recv(0, In{Buf: one(), Tag: 1})
	n1, _ := recv(1, In{Buf: one(), Any: true})
	n2, _ := recv(2, In{Tag: 3}) // too short
	n3, _ := recv(3, In{Buf: one(), Tag: 3})
	var used byte
	n4, _ := recv(4, In{Tag: 5, Use: func(_ uint32, parts [][]byte) { used = parts[0][0] }})
	send(1, 2, 3, 5, 6)
	require.True(t, b.ch.Poll())
	require.Equal(t, []int{0, 1}, order)
	require.Equal(t, []uint32{1, 2}, []uint32{n0.tag, n1.tag})
	require.True(t, b.ch.Poll(), "the receive that is too short fails, the next one takes its message")
	require.True(t, b.ch.Poll(), "a message used in place")
	require.Equal(t, []int{0, 1, 2, 3, 4}, order)
	require.ErrorIs(t, n2.err, ErrShortBuffer)
	require.Equal(t, []uint32{3, 5, 5}, []uint32{n3.tag, n4.tag, uint32(used)})
	require.False(t, b.ch.Poll(), "nobody waits for the last one")
	for range restTurns + 1 {
		_, _, err := b.ch.Progress()
		require.NoError(t, err)
	}
	require.EqualValues(t, 1, b.ch.Stats().Unexpected)
	require.False(t, b.ch.Poll())

	// A callback posts the receive of the next message, and ends the channel.
	n5 := &note{}
	n6, in := recv(6, In{Buf: one(), Tag: 7})
	n6.after = func() { b.ch.Recv(&In{Buf: one(), Tag: 8, Done: n5}) }
	send(7, 8, 9)
	require.True(t, b.ch.Poll())
	require.Equal(t, []int{1, 1}, []int{n6.n, n5.n})
	require.Nil(t, in.Buf, "it is the owner's again")
	n7, _ := recv(7, In{Buf: one(), Tag: 9})
	n8, _ := recv(8, In{Buf: one(), Tag: 9})
	n7.after = func() { b.ch.fail(ErrClosed) }
	send(9)
	require.True(t, b.ch.Poll())
	require.Equal(t, 1, n7.n)
	require.Zero(t, n8.n, "the channel has ended")
	require.False(t, b.ch.Poll())
	require.NoError(t, n7.err)
	require.EqualValues(t, 7, b.ch.Stats().Received)
}
