package rma

import (
	"errors"

	"github.com/seed33544411/rma/fabric"
)

// carriedBy notes which link carries the connection. Owner's.
func carriedBy(p *Peer) {
	p.eng.prog.AssertOwned()
	b := p.eng.bringup
	p.unaided.Store(p.own || b.Unaided(p.ep, p.link))
	over, atomics := b.Over(p.ep, p.link)
	p.over.Store(&carrier{over.Name(), atomics})
}

// errPorts is why another link carries a connection.
var errPorts = errors.New("no port of it reaches the peer")

// pathEvent reports that rail 0 was lost, or that there is another connection. Owner's.
func pathEvent(p *Peer) {
	p.eng.prog.AssertOwned()
	s, is := p.ep.(fabric.Resumer)
	if !is || p.down != nil || p.own {
		return
	}
	r := &p.rails[0]
	n, why := s.Outages()
	re, is := p.ep.(fabric.Rejoiner)
	if is && (why != nil || re.Seeks()) {
		p.conn.Now().Rejoin()
	}
	if n == r.outages && why == nil && !r.out {
		return
	}
	r.lost += n - r.outages
	r.outages, r.out = n, why != nil
	p.eng.railWatches.tell(p.rank, 0, r.lost, why)
	if why != nil {
		p.eng.cfg.Logger.Warn("rma: rail lost", "rank", p.rank, "rail", 0, "err", why)
	} else {
		before := p.Link()
		switch carriedBy(p); p.Link() {
		case before:
		case p.eng.links[p.link].Name():
			p.eng.cfg.Logger.Info("rma: connected over its own link again", "rank", p.rank, "link", p.Link(), "instead of", before)
		default:
			p.eng.cfg.Logger.Warn("rma: connected over another link", "rank", p.rank, "link", p.Link(), "instead of", before, "why", errPorts)
		}
		p.eng.cfg.Logger.Info("rma: rail connected again", "rank", p.rank, "rail", 0)
	}
}

// errRailNotified says that a peer has sent what does not travel on rails.
var errRailNotified = errors.New("notification on a rail")

// railEvent handles the end of a rail, or a notification there, which no peer sends. Owner's.
func railEvent(p *Peer, link int, c *fabric.Completion) {
	p.eng.prog.AssertOwned()
	err := errRailNotified
	if c.Op == fabric.OpDown {
		if err = c.Err(); errors.Is(err, ErrRemoteAccess) {
			refusedBy(p, err)
		}
	}
	for i, r := range p.rails {
		if r.ep != nil && r.link == link {
			loseRail(p, i, err)
		}
	}
}

// loseRail closes a rail that has failed, and has the peer close its side. Owner's.
func loseRail(p *Peer, i int, err error) {
	p.eng.prog.AssertOwned()
	closeRail(p, i, err)
	p.conn.Now().RailLost(i, err)
}

// closeRail closes this side of a rail, if it is connected. Owner's.
func closeRail(p *Peer, i int, why error) {
	p.eng.prog.AssertOwned()
	if ep := p.rails[i].ep; ep != nil {
		p.rails[i].ep = nil
		p.rails[i].lost++
		_ = ep.Close() // errors are reported by the requests
		p.one.Rails().Down(i)
		p.eng.railWatches.tell(p.rank, i, p.rails[i].lost, why)
	}
}
