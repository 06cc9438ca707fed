package hub

import (
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/message"
)

// goneTaker counts the ends of ranks that it is told.
type goneTaker struct{ gone int }

func (*goneTaker) Take(int, uint32, int, bool) *message.In { return nil }
func (*goneTaker) Use(*message.Run)                        {}
func (g *goneTaker) Gone(int, error)                       { g.gone++ }

// The end of a rank is told to so many receivings that a look at all before each of them would not end, except to
// those behind one that has left a message for which they may be.
func TestGoneOfManyReceivings(t *testing.T) {
	t.Parallel()
	var first, second, behind, apart goneTaker
	h := &Hub{all: []*Conversation{{of: 0, over: errors.New("gone")}}}
	stalled := newReceiving(1, 5, 0, 0, &second)
	stalled.stalls[0] = true
	h.receivings = slices.Concat(
		slices.Repeat([]*Receiving{newReceiving(1, 7, 0, 0, &first)}, 1<<20),
		[]*Receiving{stalled, newReceiving(1, 4, 1, 0, &behind), newReceiving(1, 6, 0, 0, &apart)})
	h.tellGone()
	require.Equal(t, []int{1, 0, 0, 1}, []int{first.gone, second.gone, behind.gone, apart.gone})
	stalled.stalls[0] = false
	h.tellGone()
	require.Equal(t, []int{1, 1, 1, 1}, []int{first.gone, second.gone, behind.gone, apart.gone})
}
