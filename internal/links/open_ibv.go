package links

import (
	"fmt"

	"github.com/seed33544411/rma/fabric"
)

func openIBV(Options) (fabric.Link, error) {
	return nil, fmt.Errorf("ibv: %w in this version", fabric.ErrNotSupported)
}
