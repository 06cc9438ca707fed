package rma

import (
	"fmt"
	"strings"
	"time"

	"github.com/seed33544411/rma/internal/message"
	"github.com/seed33544411/rma/logp"
)

// driftEvery is how often a peer's link is reported to have changed, at most.
const driftEvery = 10 * time.Minute

// learns is message.Options.Learn: figures that nobody measured are not held
// against what is.
func (e *Engine) learns() int {
	if e.cfg.Sampling == SamplingOff {
		return 0
	}
	return e.cfg.Learn
}

// drifted is told by a peer's channel that the link is not what was measured, in
// these modes. Plans follow by themselves; it is said in the log, and the saved
// figures are put aside, so that the next start measures. Owner's.
func (p *Peer) drifted(modes logp.ModeSet) {
	e, now := p.eng, time.Now()
	if !p.talk.warned.IsZero() && now.Sub(p.talk.warned) < driftEvery {
		return
	}
	p.talk.warned = now
	ways := slower(p.talk.ch, modes)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed.Load() {
		return
	}
	// Logs and files may take their time; the links must not wait for them.
	e.begin(func() {
		e.cfg.Logger.Warn("rma: link is not as measured", "rank", p.rank, "link", p.Link(), "slower", ways)
		store, key := e.profile(p.link)
		if store == nil {
			return
		}
		if err := store.Retire(key); err != nil {
			e.cfg.Logger.Warn("rma: figures of a link are still used", "link", p.Link(), "err", err)
		}
	})
}

// slower says which modes have become how much slower.
func slower(ch *message.Channel, modes logp.ModeSet) string {
	var s []string
	for m := range logp.Mode(logp.NumModes) {
		if modes.Has(m) {
			f := 1.
			if ch != nil {
				f = ch.Stats().Learn.Modes[m].Factor
			}
			s = append(s, fmt.Sprintf("%v %.1f times", m, f))
		}
	}
	return strings.Join(s, ", ")
}
