package links

import (
	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/tcp"
)

func openTCP(o Options) (fabric.Link, error) { return tcp.Open(&tcp.Config{Bind: o.Bind}) }
