package bringup

import (
	"github.com/seed33544411/rma/internal/cpu"
)

// SpinPolicy is how long this rank's waits spin and yield: as configured, else as fits
// the ranks on this host and the processors that they may use, which all ranks have
// told in their offers.
func (l *Links) SpinPolicy() cpu.Patience {
	mine := l.hosts[l.job.Rank()]
	var sets []cpu.Set
	for _, o := range l.hosts {
		if o.Host == mine.Host {
			sets = append(sets, o.CPUs)
		}
	}
	load, cpus := cpu.Load(mine.CPUs, sets), cpu.Union(sets).Len()
	p := l.spin(cpu.For(load, cpus))
	l.Log.Debug("rma: waits", "policy", p.String(), "ranks", len(sets), "processors", cpus, "load", load)
	return p
}

// spin puts what is configured in the place of what was chosen.
func (c *Config) spin(p cpu.Patience) cpu.Patience {
	if c.Spin != 0 {
		p = p.Spun(max(c.Spin, 0))
	}
	if c.Yields != 0 {
		p.Yields = max(c.Yields, 0)
	}
	return p
}
