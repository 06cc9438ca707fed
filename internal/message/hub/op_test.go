package hub

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/message"
)

// Then may use the request of a batch up while its receives are withdrawn.
func TestReceivesOfABatchAfterThen(t *testing.T) {
	t.Parallel()
	o := newOp(nil, RecvSeveral, false)
	o.recvs = &RecvBatch{Slots: make([]Slot, 2)}
	o.recvs.begin(o)
	n := 0
	o.pending(func(*message.In) {
		if n++; n == 1 {
			o.Then(func(error) {})
		}
	})
	require.Equal(t, 2, n)
}
