package rdv

import (
	"testing"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/ibv"
	"github.com/seed33544411/rma/internal/testutil"
)

// The same over queue pairs, where reads are bounded by the device and a
// refused one takes the queue pair down.
func TestIBV(t *testing.T) {
	devs := [2]string{}
	devs[0], devs[1] = testutil.RDMAPair(t)
	opener := func(o ibv.Options) opener {
		n := 0
		return two(func() (fabric.Link, error) { // one end after the other
			o.Device = devs[n%2]
			n++
			return ibv.Open(o)
		})
	}
	open := opener(ibv.Options{})
	t.Run("scripts", func(t *testing.T) { overLink(t, open) })
	t.Run("owners", func(t *testing.T) { twoOwners(t, open, 60) })
	t.Run("allocations", func(t *testing.T) { steadyDoesNotAllocate(t, open) })
	one := opener(ibv.Options{MaxReads: 1})
	t.Run("one read at a time", func(t *testing.T) { overLink(t, one) })
}
