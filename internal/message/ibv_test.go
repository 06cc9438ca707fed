package message

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/ibv"
	"github.com/seed33544411/rma/internal/testutil"
)

// The same scripts over queue pairs.
func TestIBV(t *testing.T) {
	testutil.RequireRDMA(t)
	open := two(func() (fabric.Link, error) { return ibv.Open(ibv.Options{}) })
	for policy := range policies {
		for name, how := range firsts {
			t.Run(policy+"/"+name, func(t *testing.T) { script(t, open, 5, policy, how, 300, 200000) })
		}
	}
}

func TestStagedIBV(t *testing.T) {
	testutil.RequireRDMA(t)
	o := Options{Policy: policies["scatter"], Staged: true}
	a, b := pair(t, two(func() (fabric.Link, error) { return ibv.Open(ibv.Options{}) }), 64, o, Options{Policy: policies["scatter"]})
	staged(t, a, b)
	require.Zero(t, a.ch.pins.Stats().Misses)
}

func BenchmarkUnregisteredIBV(b *testing.B) {
	testutil.RequireRDMA(b)
	unregistered(b, two(func() (fabric.Link, error) { return ibv.Open(ibv.Options{}) }))
}
