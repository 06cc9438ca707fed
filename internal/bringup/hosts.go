package bringup

import (
	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/topo"
)

// SpinPolicy returns how long this rank's waits spin and yield: as configured, else by the
// number of ranks on this host and the processors that they may use, which all ranks state
// in their offers.
func (l *Links) SpinPolicy() cpu.SpinPolicy {
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

// spin overrides the chosen policy by the configured values.
func (c *Config) spin(p cpu.SpinPolicy) cpu.SpinPolicy {
	if c.Spin != 0 {
		p = p.Spun(max(c.Spin, 0))
	}
	if c.Yields != 0 {
		p.Yields = max(c.Yields, 0)
	}
	return p
}

// Place says where a rank is.
type Place struct {
	Host                 int // among the hosts of the job, in the order of their lowest ranks
	LocalRank, LocalSize int // among the ranks of that host
	Here                 bool
	Near                 topo.Near // distance to this rank, if on this host
}

// Place returns where the rank is. Any goroutine may call it. Setup path.
func (l *Links) Place(rank int) (p Place) {
	of, mine := l.hosts[rank], l.hosts[l.job.Rank()]
	hosts := map[string]int{}
	for r, o := range l.hosts {
		if _, seen := hosts[o.Host]; !seen {
			hosts[o.Host] = len(hosts)
		}
		if o.Host == of.Host {
			if p.LocalSize++; r < rank {
				p.LocalRank++
			}
		}
	}
	p.Host = hosts[of.Host]
	if p.Here = of.Host == mine.Host; p.Here {
		a, b := processors(mine.CPUs), processors(of.CPUs)
		p.Near = topo.Local(b).Between(a, b)
	}
	return p
}

// processors converts a set to that of package topo.
func processors(s cpu.Set) topo.Set {
	var list []int
	for i := range 64 * len(s) {
		if s[i>>6]>>(i&63)&1 != 0 {
			list = append(list, i)
		}
	}
	return topo.Of(list...)
}
