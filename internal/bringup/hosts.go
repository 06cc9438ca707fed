package bringup

import (
	"runtime"
	"slices"

	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/links"
	"github.com/seed33544411/rma/internal/topo"
)

// SpinPolicy returns how long this rank's waits spin and yield: as configured, else by the
// number of ranks on this host and the processors that they may use, which all ranks state
// in their offers.
func (l *Links) SpinPolicy() cpu.SpinPolicy {
	rank := l.job.Rank()
	sets := l.sets(rank)
	load, cpus := cpu.Load(l.hosts[rank].CPUs, sets), cpu.Union(sets).Len()
	p := l.spin(cpu.For(load, cpus))
	l.Log.Debug("rma: spin policy", "policy", p.String(), "ranks", len(sets), "processors", cpus, "load", load)
	return p
}

// Home returns the processor of this rank among those of its host, see [cpu.Home].
func (l *Links) Home() int {
	p := l.Place(l.job.Rank())
	return cpu.Home(l.hosts[l.job.Rank()].CPUs, p.LocalRank, p.LocalSize)
}

// sets returns the processors that each rank on the host of rank may use.
func (l *Links) sets(rank int) (sets []cpu.Set) {
	for _, o := range l.hosts {
		if o.Host == l.hosts[rank].Host {
			sets = append(sets, o.CPUs)
		}
	}
	return sets
}

// Load returns the number of processors that the rank may use, 0 if it has not stated them,
// and the number of ranks that share each, see [cpu.Load]. All ranks get the same figures.
// Setup path.
func (l *Links) Load(rank int) (load float64, cpus int) {
	mine := l.hosts[rank].CPUs
	return cpu.Load(mine, l.sets(rank)), mine.Len()
}

// spareP gives the runtime a second P if it has one by default and this rank shares its only
// processor with no other: the progress goroutine then gets the processor from a goroutine that
// computes when the kernel wakes its thread, and not after the scheduler's 10 ms for each such
// goroutine. GOMAXPROCS stays 2 when the engine is closed.
func (l *Links) spareP() {
	load, cpus := l.Load(l.job.Rank())
	if len(l.hosts) == 1 || cpus != 1 || load > cpu.OneEach || !links.OneByDefault() {
		return
	}
	runtime.GOMAXPROCS(2)
	l.Log.Debug("rma: GOMAXPROCS raised", "from", 1, "to", 2)
}

// spin overrides the chosen policy by the configured values.
func (c *Config) spin(p cpu.SpinPolicy) cpu.SpinPolicy {
	if c.Spin != 0 {
		p = p.Spun(max(c.Spin, 0))
	}
	if c.Yields != 0 {
		p.Yields, p.Adapt = max(c.Yields, 0), false
	}
	return p
}

// Place says where a rank is.
type Place struct {
	Host                 int // among the hosts of the job, in the order of their lowest ranks
	LocalRank, LocalSize int // among the ranks of that host
	Processors           int // that the ranks of that host may use; 0: one of them has not stated its own
	Here                 bool
	Near                 topo.Near // distance to this rank, if on this host
}

// Place returns where the rank is. Any goroutine may call it. Setup path.
func (l *Links) Place(rank int) Place {
	l.placed.Do(func() { l.places = placesOf(l.hosts) })
	of, mine, p := l.hosts[rank], l.hosts[l.job.Rank()], l.places[rank]
	if p.Here = of.Host == mine.Host; p.Here {
		p.Near = topo.Local(of.CPUs).Between(mine.CPUs, of.CPUs)
	}
	return p
}

// placesOf returns the places of ranks, without what depends on the rank that asks.
func placesOf(hosts []links.Offer) []Place {
	places, numbers, sets := make([]Place, len(hosts)), map[string]int{}, [][]cpu.Set(nil)
	for r, o := range hosts {
		n, seen := numbers[o.Host]
		if !seen {
			n = len(numbers)
			numbers[o.Host], sets = n, append(sets, nil)
		}
		places[r] = Place{Host: n, LocalRank: len(sets[n])}
		sets[n] = append(sets[n], o.CPUs)
	}
	processors := make([]int, len(sets))
	for n, of := range sets {
		if silent := slices.ContainsFunc(of, func(s cpu.Set) bool { return s.Len() == 0 }); !silent {
			processors[n] = cpu.Union(of).Len()
		}
	}
	for r := range places {
		p := &places[r]
		p.LocalSize, p.Processors = len(sets[p.Host]), processors[p.Host]
	}
	return places
}
