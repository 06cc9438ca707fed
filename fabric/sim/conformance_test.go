package sim

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/fabrictest"
	"github.com/seed33544411/rma/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

func factory(o Options) fabrictest.Factory {
	return fabrictest.Factory{
		Open: func(tb testing.TB) (fabric.Link, fabric.Link) {
			n := NewNetwork(o)
			a, err := n.NewLink()
			require.NoError(tb, err)
			b, err := n.NewLink()
			require.NoError(tb, err)
			return a, b
		},
		Kill:     func(_ testing.TB, l fabric.Link) { l.(*Link).Kill() },
		IdleDown: true,
	}
}

func TestConformance(t *testing.T) {
	for name, o := range map[string]Options{
		"plain": {},
	} {
		t.Run(name, func(t *testing.T) { fabrictest.Run(t, factory(o)) })
	}
}
