package links

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/fallback"
	"github.com/seed33544411/rma/fabric/ibv"
	"github.com/seed33544411/rma/fabric/shm"
	"github.com/seed33544411/rma/fabric/tcp"
)

func openSHM(o Options) (fabric.Link, error) {
	return shm.Open(shm.Options{
		DisableCMA: o.DisableCMA, DisableSegments: o.DisableSegments,
		StreamFrom: o.StreamFrom, StringFrom: o.StringFrom,
	})
}

func openTCP(o Options) (fabric.Link, error) { return openTCPAs(o, func(*tcp.Config) {}) }

// openTCPAs opens a link with a configuration that with has changed.
func openTCPAs(o Options, with func(*tcp.Config)) (fabric.Link, error) {
	c, err := tcp.ParseCongestion(o.Congestion)
	if err != nil {
		return nil, fmt.Errorf("tcp: %w: %s: %w", ErrEnvironment, EnvCongestion, err)
	}
	crypt, err := tcp.ParseCrypt(o.Crypt)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrEnvironment, EnvCrypt, err)
	}
	var paths []netip.Addr
	for _, where := range o.Rails {
		if a, err := localAddr(where); err == nil { // otherwise it is no rail: OpenRail says why
			paths = append(paths, a)
		}
	}
	cfg := tcp.Config{
		Bind: o.Bind, Congestion: c, Crypt: crypt, Unsent: o.Unsent, LongRTT: o.LongRTT, Lanes: o.Lanes, LaneMin: o.LaneMin,
		Resume: len(paths) > 0, Paths: paths,
	}
	with(&cfg)
	return tcp.Open(&cfg)
}

func openIBV(o Options) (fabric.Link, error) {
	var spares []ibv.Spare
	for _, where := range o.Rails[:min(len(o.Rails), ibv.MaxSpares)] {
		s, err := spareOf(where)
		if err != nil { // it keeps its place: OpenRail says why it is no rail
			s.Device = where
		}
		spares = append(spares, s)
	}
	l, err := ibv.Open(ibv.Options{
		Device: o.Device, Port: o.Port, GIDIndex: o.GIDIndex, LastByteLast: o.LastByteLast, Guard: o.Guard, HostAtomics: o.HostAtomics,
		Resume: len(o.Rails) > 0, Spares: spares,
	})
	if err != nil {
		return nil, err
	}
	if !o.Fallback {
		return l, nil
	}
	return fallBack(l, o)
}

// fallBack returns first with tcp for endpoints that it does not connect. Without tcp here, peers that have it
// still connect over first.
func fallBack(first fabric.Link, o Options) (fabric.Link, error) {
	o.Rails = nil
	second, err := openTCPAs(o, func(c *tcp.Config) { c.Named = true })
	if err != nil {
		second = nil
	}
	l, err := fallback.New(first, second)
	if err != nil {
		err = errors.Join(err, first.Close())
		if second != nil {
			err = errors.Join(err, second.Close())
		}
		return nil, err
	}
	return l, nil
}
