package collective

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/topo"
)

// Ranks are bound by default only if each has a core of its own, which is then a different one.
func TestParseBind(t *testing.T) {
	t.Parallel()
	cores := topo.Local().UsableCores(cpu.Allowed())
	p, err := ParseBind(BindAuto, cores+1)
	require.NoError(t, err)
	require.Equal(t, topo.None, p)
	require.Nil(t, (&Request{Ranks: cores + 1, Bind: p}).Bound())

	p, err = ParseBind(BindAuto, cores)
	require.NoError(t, err)
	require.Equal(t, topo.Scatter, p)
	var taken cpu.Set
	for _, b := range (&Request{Ranks: cores, Bind: p}).Bound() {
		require.Positive(t, b.CPUs.Len())
		require.False(t, taken.Meets(b.CPUs))
		taken = taken.Or(b.CPUs)
	}

	for _, name := range Binds[1:] {
		p, err := ParseBind(name, 1)
		require.NoError(t, err)
		require.Equal(t, name, p.String())
	}
	_, err = ParseBind("spread", 2)
	require.ErrorIs(t, err, ErrRequest)
}
