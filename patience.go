package rma

import (
	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/links"
)

// patience is how long this rank's waits spin and yield: what the configuration
// says, else what fits the ranks on this host and the processors that they may
// use, which all ranks have told in their offers.
func (e *Engine) patience(all []links.Offer) cpu.Patience {
	mine := all[e.Rank()]
	var sets []cpu.Set
	for _, o := range all {
		if o.Host == mine.Host {
			sets = append(sets, o.CPUs)
		}
	}
	load, cpus := cpu.Load(mine.CPUs, sets), cpu.Union(sets).Len()
	p := e.cfg.patient(cpu.For(load, cpus))
	e.cfg.Logger.Debug("rma: waits", "patience", p.String(), "ranks", len(sets), "processors", cpus, "load", load)
	return p
}

// patient puts what is configured in the place of what was chosen.
func (c *Config) patient(p cpu.Patience) cpu.Patience {
	if c.Spin != 0 {
		p = p.Spun(max(c.Spin, 0))
	}
	if c.Yields != 0 {
		p.Yields = max(c.Yields, 0)
	}
	return p
}
