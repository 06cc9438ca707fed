package links

import (
	"fmt"

	"github.com/seed33544411/rma/fabric"
)

func openTCP(Options) (fabric.Link, error) {
	return nil, fmt.Errorf("tcp: %w in this version", fabric.ErrNotSupported)
}
