package sampling

import (
	"testing"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/ibv"
	"github.com/seed33544411/rma/internal/testutil"
)

// The same over queue pairs, where a napping peer is woken by notifications.
func TestIBV(t *testing.T) {
	testutil.RequireRDMA(t)
	open := two(func() (fabric.Link, error) { return ibv.Open(ibv.Options{}) })
	t.Run("measure", func(t *testing.T) { overLink(t, open) })
	t.Run("profile", func(t *testing.T) { cachedOver(t, open) })
}
