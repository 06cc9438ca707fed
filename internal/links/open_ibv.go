package links

import (
	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/ibv"
)

func openIBV(o Options) (fabric.Link, error) {
	l, err := ibv.Open(ibv.Options{Device: o.Device, Port: o.Port, GIDIndex: o.GIDIndex, LastByteLast: o.LastByteLast, Guard: o.Guard})
	if err != nil {
		return nil, err
	}
	return l, nil
}
