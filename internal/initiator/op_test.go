package initiator

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
	m.phase, m.flag.addr, m.await.cond = phaseFlag, 1, onesided.GE
	m.user.mem = make([]byte, 3)
	m.acc.src = make([]byte, 3)
	m.cur.AddLocal(onesided.Piece{Len: 1})
	m.recycle()
	m.cur = onesided.Cursor{} // keeps the lists' capacity
	require.True(t, reflect.ValueOf(*m).IsZero(), "%+v", *m)
}

// The kinds that links see have an operation of theirs, and all have a name.
func TestKinds(t *testing.T) {
	for k := Put; k <= Flush; k++ {
		require.NotEmpty(t, k.String())
		if k < Await {
			require.NotZero(t, k.request(), k)
		}
	}
}
