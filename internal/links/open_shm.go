package links

import (
	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/shm"
)

func openSHM(o Options) (fabric.Link, error) {
	return shm.Open(shm.Options{
		DisableCMA: o.DisableCMA, DisableSegments: o.DisableSegments,
		StreamFrom: o.StreamFrom, StringFrom: o.StringFrom,
	})
}
