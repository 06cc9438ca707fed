package rma

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/links"
	"github.com/seed33544411/rma/internal/message"
	"github.com/seed33544411/rma/internal/progress"
	"github.com/seed33544411/rma/mr"
)

// setup opens the links that the job needs. Connections are made later, at the
// first operation with a peer (see dial), but for those that are measured. Every
// step that exchanges something is taken by all ranks or by none: what decides
// is known to all alike.
func (e *Engine) setup(ctx context.Context) error {
	hosts, err := e.offers(ctx, links.NewOffer(nil))
	if err != nil {
		return err
	}
	oneHost := true
	for _, h := range hosts {
		oneHost = oneHost && h.Host == hosts[0].Host
	}
	if !oneHost && !e.opts.Bind.IsValid() {
		if e.opts.Bind = e.job.LocalAddr(); !e.opts.Bind.IsValid() {
			e.opts.Bind = anyAddr()
		}
	}
	names := links.Names()
	switch {
	case e.cfg.Fabric != "":
		names = []string{string(e.cfg.Fabric)}
	case oneHost:
		names = []string{"shm"} // the others only if that does not work for all
	}
	chosen, why, err := e.agree(ctx, names)
	if err == nil && chosen == nil && e.cfg.Fabric == "" && oneHost {
		chosen, why, err = e.agree(ctx, links.Names())
	}
	if err != nil {
		return err
	}
	if chosen == nil {
		return why
	}
	if err := e.keep(chosen); err != nil {
		return err
	}
	if e.prog, err = progress.New(e.links, e.proto, e.patience(hosts)); err != nil {
		return err
	}
	e.job.NotifyGone(e.lost)
	e.job.NotifyTold(e.told)
	if err := e.calibrate(ctx); err != nil {
		return err
	}
	if e.cfg.HangTimeout > 0 && e.Size() > 1 {
		e.tasks.Go(e.attend)
	}
	return e.meetServer(ctx)
}

// meetServer returns when all ranks are here, and learns which of them serves the
// rendezvous.
func (e *Engine) meetServer(ctx context.Context) error {
	mine := []byte{}
	if e.job.Serves() {
		mine = []byte{1}
	}
	all, err := e.job.AllGather(ctx, "rma/open", mine)
	for r, b := range all {
		if len(b) > 0 {
			e.server.Store(int32(r) + 1)
		}
	}
	return err
}

func (e *Engine) offers(ctx context.Context, mine links.Offer) ([]links.Offer, error) {
	all, err := e.job.AllGather(ctx, "rma/offer", mine.Append(nil))
	if err != nil {
		return nil, err
	}
	offers := make([]links.Offer, len(all))
	for r, b := range all {
		if offers[r], err = links.ParseOffer(b); err != nil {
			return nil, fmt.Errorf("from rank %d: %w", r, err)
		}
	}
	return offers, nil
}

// agree opens links, tells the others, and chooses one for each rank. If any
// two ranks of the job have none in common, chosen is nil on every rank, and
// why says which.
func (e *Engine) agree(ctx context.Context, names []string) (chosen []string, why, err error) {
	var open []string
	var reasons []error
	for _, l := range e.links {
		open = append(open, l.Name())
	}
next:
	for _, name := range names {
		for _, have := range open {
			if have == name {
				continue next
			}
		}
		l, err := links.Open(name, e.opts)
		if err != nil {
			reasons = append(reasons, err)
			continue
		}
		e.links = append(e.links, l)
		open = append(open, name)
	}
	offers, err := e.offers(ctx, links.NewOffer(open))
	if err != nil {
		return nil, nil, err
	}
	me := e.Rank()
	e.pairs = map[string]pair{}
	chosen = make([]string, e.Size())
	for a := range offers {
		for b := range offers[:a+1] {
			if a == b && a != me {
				continue // what it does with itself is its own affair
			}
			name, err := links.Choose(offers[b], offers[a], string(e.cfg.Fabric))
			if err != nil {
				reasons = append([]error{fmt.Errorf("%w: ranks %d and %d: %w", ErrNoConnection, b, a, err)}, reasons...)
				return nil, errors.Join(reasons...), nil
			}
			if _, has := e.pairs[name]; !has && a != b {
				e.pairs[name] = pair{b, a, offers[a].Host == offers[b].Host}
			}
			switch me {
			case a:
				chosen[b] = name
			case b:
				chosen[a] = name
			}
		}
	}
	return chosen, nil, nil
}

// keep closes the links that no peer is reached by, and makes the peers.
func (e *Engine) keep(chosen []string) error {
	index := map[string]int{}
	var kept []fabric.Link
	for _, l := range e.links {
		used := false
		for _, name := range chosen {
			used = used || name == l.Name()
		}
		if !used {
			if err := l.Close(); err != nil {
				e.cfg.Logger.Warn("rma: close of an unused link", "link", l.Name(), "err", err)
			}
			continue
		}
		index[l.Name()] = len(kept)
		kept = append(kept, l)
	}
	e.links = kept
	var rails []mr.Rail
	for _, l := range kept {
		s, err := newSlots(l)
		if err != nil {
			return fmt.Errorf("memory for results on %s: %w", l.Name(), err)
		}
		e.proto.one.slots = append(e.proto.one.slots, s)
		if e.cfg.HangTimeout > 0 {
			if err := e.proto.heart.open(l, e.Size()); err != nil {
				return err
			}
		}
		pins, err := message.NewPins(l, int64(e.cfg.PinnedLimit))
		if err != nil {
			return fmt.Errorf("memory kept registered on %s: %w", l.Name(), err)
		}
		e.pins = append(e.pins, pins)
		e.numbers = append(e.numbers, linkNumber[l.Name()])
		rails = append(rails, mr.Rail{Link: l, Number: linkNumber[l.Name()]})
	}
	var err error
	if e.memory, err = mr.NewDomain(rails...); err != nil {
		return err
	}
	for rank, name := range chosen {
		i := index[name]
		caps := e.links[i].Caps()
		p := &Peer{
			eng: e, rank: rank, id: uint32(rank), own: rank == e.Rank(), link: i, num: e.numbers[i],
			max: min(caps.MaxMessage, 1<<32-1), sges: max(caps.MaxSGE, 1), wakes: caps.WakesOnWrite, inline: caps.MaxInline >= 8, soon: caps.Immediate,
			shows: caps.Immediate || !caps.TargetProgress,
		}
		p.talk.loop.From, p.talk.loop.Shared = rank, &e.proto.hub.shared
		p.dial.Store(newDial(e.life, 0))
		e.peers = append(e.peers, p)
		e.cfg.Logger.Debug("rma: link chosen", "rank", rank, "link", name)
	}
	t := e.proto
	t.hub.shared.Again = t.hub.again
	t.peers, t.one.peers, t.hub.peers, t.one.began = e.peers, e.peers, e.peers, time.Now()
	t.heart.every = max(e.cfg.HangTimeout, 0) / hangBeats
	return nil
}
