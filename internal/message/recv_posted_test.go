package message

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric/sim"
)

// The callback of a message posts the receive of the next one, which has come with it: that is
// not copied aside, although receives are posted by way of a queue.
func TestReceivesOfCallbacksAreInTime(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"eager", "gather"} {
		for link, open := range map[string]opener{"sim": simLinks(sim.Options{}), "tcp": realLinks["tcp"]} {
			t.Run(name+"/"+link, func(t *testing.T) {
				t.Parallel()
				var posted []*In
				var b *side
				take := func() bool {
					ins := posted
					posted = nil
					for _, in := range ins {
						b.ch.Recv(in)
					}
					return len(ins) > 0
				}
				a, to := pair(t, open, 1<<14, Options{Policy: policies[name]}, Options{Posted: take})
				b = to
				data := a.reg.Bytes()
				for i := range data {
					data[i] = byte(i * 7)
				}
				var head, body note
				got := make([]byte, 8000)
				in := In{Buf: make([]byte, 64), Tag: 1, Done: &head}
				head.after = func() { posted = append(posted, &In{Buf: got, Tag: 2, Done: &body}) }
				b.ch.Recv(&in)
				var sent [2]note
				a.ch.Send(&Out{Tag: 1, Data: data[:64], Done: &sent[0]})
				a.ch.Send(&Out{Tag: 2, Data: data[64 : 64+len(got)], Done: &sent[1]})
				for sent[1].n == 0 { // both are placed in the ring
					require.NoError(t, a.turn())
					b.poll()
				}
				for body.n == 0 {
					require.NoError(t, a.turn())
					require.NoError(t, b.turn())
					take()
				}
				require.Equal(t, 1, head.n)
				require.NoError(t, body.err)
				require.Equal(t, data[64:64+len(got)], got)
				require.Zero(t, b.ch.Stats().Unexpected)
			})
		}
	}
}
