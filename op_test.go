package rma

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/onesided"
)

// What is used again remembers nothing: an operation that was refused after it had been
// given memory must not leave it to the next.
func TestMoreForgets(t *testing.T) {
	m := new(more)
	m.phase, m.flag.addr, m.word.cond = phaseFlag, 1, GE
	m.user.mem = make([]byte, 3)
	m.acc.src = make([]byte, 3)
	m.cur.AddLocal(onesided.Piece{Len: 1})
	m.recycle()
	m.cur = onesided.Cursor{} // keeps the lists' capacity
	require.True(t, reflect.ValueOf(*m).IsZero(), "%+v", *m)
}

// As above, through the interface: a refused PutBytes, then operations that use the
// same kind of memory.
func TestRefusedLeavesNothing(t *testing.T) {
	es := open(t, 1, "shm")
	mems, keys := share(t, es, 64)
	p := es[0].Peer(0)
	for i := range 100 {
		require.ErrorIs(t, p.PutBytes(keys[0].At(60), []byte("too long")).Wait(t.Context()), ErrBounds)
		copy(mems[0].Bytes(), "source")
		req := p.PutStrided(keys[0].At(32), mems[0].Slice(0, 6), Shape2D(1, 6, 6, 6))
		require.NoError(t, req.Wait(t.Context()))
		require.Equal(t, "source", string(mems[0].Bytes()[32:38]), i)
		clear(mems[0].Bytes())
	}
}
