package links

import (
	"fmt"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/tcp"
)

func openTCP(o Options) (fabric.Link, error) {
	c, err := tcp.ParseCongestion(o.Congestion)
	if err != nil {
		return nil, fmt.Errorf("tcp: %w: %s: %w", ErrEnvironment, EnvCongestion, err)
	}
	crypt, err := tcp.ParseCrypt(o.Crypt)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrEnvironment, EnvCrypt, err)
	}
	return tcp.Open(&tcp.Config{
		Bind: o.Bind, Congestion: c, Crypt: crypt, Unsent: o.Unsent, LongRTT: o.LongRTT, Lanes: o.Lanes, LaneMin: o.LaneMin,
	})
}
