package eager

import (
	"fmt"
	"testing"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/ibv"
	"github.com/seed33544411/rma/internal/testutil"
)

// The same over queue pairs, where plain writes wake nobody and packets split
// messages where they like.
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
	t.Run("gathers", func(t *testing.T) { gathersOver(t, open) })
	for _, mode := range bothModes {
		t.Run(fmt.Sprintf("owners/%v", mode), func(t *testing.T) { twoOwners(t, open, mode, 1000) })
		t.Run(fmt.Sprintf("nap/%v", mode), func(t *testing.T) { napTest(t, open, Options{Blocks: 8, BlockSize: 256, Mode: mode}, 300) })
	}
	no := false
	unordered := opener(ibv.Options{LastByteLast: &no})
	t.Run("no order inside a write", func(t *testing.T) {
		twoOwners(t, unordered, ModeAuto, 500)
		a, b := pair(t, unordered, Options{Blocks: 256, BlockSize: 1024}, Options{Blocks: 256, BlockSize: 1024})
		newBatches(t, 1, a, b).run(30)
	})
}
