package links

import (
	"fmt"

	"github.com/seed33544411/rma/fabric"
)

func openSHM(Options) (fabric.Link, error) {
	return nil, fmt.Errorf("shm: %w in this version", fabric.ErrNotSupported)
}
