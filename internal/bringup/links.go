package bringup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/links"
	"github.com/seed33544411/rma/sampling"
)

// Job is the part of *wireup.Job that this package uses.
type Job interface {
	links.Job
	Size() int
	LocalAddr() netip.Addr
	AllGather(ctx context.Context, name string, val []byte) ([][]byte, error)
	Take(key string) error
	Send(ctx context.Context, rank int, key string, val []byte) error
	Done() <-chan struct{}
	Err() error
}

// Config says how links are opened and measured, and how connections are made.
type Config struct {
	Options links.Options // without Options.Bind the address is chosen by where the ranks are
	Fabric  string        // the only kind of link to use, by its proper name; empty: any

	Depth        int           // requests in flight with one peer
	PeerTimeout  time.Duration // bound of a link's detection that a peer is gone
	SetupTimeout time.Duration // bound of connecting; 0 or less: none

	Sampling sampling.Mode
	Budget   time.Duration // for measuring one kind of link
	Profiles string        // directory of saved measurements; empty: the user's

	PathBudget time.Duration // for measuring a class of paths in the background; negative: none is measured
	PathBytes  int64         // bound of the bytes that this moves, both directions together

	Spin, Yields int // of waits, before they yield and before they sleep; 0: chosen automatically, negative: none

	Log *slog.Logger
}

// Links are the links by which a rank reaches the ranks of its job.
type Links struct {
	Config
	job   Job
	open  []fabric.Link
	to    []int           // by rank: index in open of the link that reaches it
	kinds map[string]bool // of links between any two ranks of the job
	rails []Rail
	hosts []links.Offer
	// Where the ranks are: see Place.
	placed sync.Once
	places []Place
	pairs  map[string]pair // by kind of link: the ranks that measure it

	figures    []figures     // by link, of the first pair
	calibrated chan struct{} // closed when figures are there
	paths      paths
	unfinished []*sampling.Session // failed measurements, to whose memory the peer may still write

	// Measured holds the results that this rank has measured or loaded.
	Measured []sampling.Result
	// Batches counts the measurements for which this rank has played batches.
	Batches int

	warned []time.Time // by rank: when a drift of the link was last logged; the owner's
}

// pair holds the two ranks that measure a kind of link for the job.
type pair struct {
	low, high int
	sameHost  bool
}

// Open opens the links that the job needs. All ranks call it. The caller closes the
// result, after everything that uses a link. Setup path.
func Open(ctx context.Context, job Job, cfg Config) (l *Links, err error) {
	l = &Links{Config: cfg, job: job, calibrated: make(chan struct{}), warned: make([]time.Time, job.Size())}
	defer func() {
		if err != nil {
			l, err = nil, errors.Join(err, l.Close())
		}
	}()
	if l.hosts, err = l.offers(ctx, links.NewOffer(nil).On(l.Options.Host)); err != nil {
		return l, err
	}
	l.spareP()
	oneHost := !slices.ContainsFunc(l.hosts, func(o links.Offer) bool { return o.Host != l.hosts[0].Host })
	l.Options.Reachable(oneHost, job.LocalAddr())
	names := links.Names()
	switch {
	case cfg.Fabric != "":
		names = []string{cfg.Fabric}
	case oneHost:
		names = []string{"shm"} // other links only if shm does not reach all ranks
	}
	chosen, why, err := l.agree(ctx, names)
	if err == nil && chosen == nil && cfg.Fabric == "" && oneHost {
		chosen, why, err = l.agree(ctx, links.Names())
	}
	if err != nil {
		return l, err
	}
	if chosen == nil {
		return l, why
	}
	l.keep(chosen)
	l.openRails()
	return l, nil
}

// All returns the links.
func (l *Links) All() []fabric.Link { return l.open }

// To returns the index of the link that reaches the rank.
func (l *Links) To(rank int) int { return l.to[rank] }

// Path returns the path to the rank with the present parameters. Any goroutine may call it.
func (l *Links) Path(rank int) Path {
	at := l.to[rank]
	p := l.paths.path(rank, l.job.Rank() < rank)
	p.Link = l.open[at].Name()
	return p
}

// Surveys counts the measurements in the background. Any goroutine may call it.
func (l *Links) Surveys() Surveys { return l.paths.surveys() }

// Unaided reports whether the link of that index executes requests on any memory of the
// peer at the other end of ep without the peer's process.
func (l *Links) Unaided(ep fabric.Endpoint, link int) bool {
	if n, ok := ep.(fabric.Neighbour); ok {
		return n.Near().Private == "process_vm"
	}
	over, _ := l.Over(ep, link)
	return !over.Caps().TargetProgress
}

// Over returns the link that carries the requests of ep, an endpoint of the link of that index, and whether
// its atomics exclude those of others on memory of the peer: see fabric.Fork.
func (l *Links) Over(ep fabric.Endpoint, link int) (over fabric.Link, atomics bool) {
	if f, is := l.open[link].(fabric.Fork); is {
		return f.Over(ep)
	}
	return l.open[link], true
}

// railed are the kinds of links that may have rails, in order of preference: a job has rails
// of one kind.
var railed = []string{"ibv", "tcp", "sim"}

// openRails opens the rails of the settings, further links of one of the kinds that the job
// uses. A link that cannot be opened is no rail.
func (l *Links) openRails() {
	for _, kind := range railed {
		if !l.kinds[kind] {
			continue
		}
		for i, where := range l.Options.Rails {
			if i+1 > maxRail-(len(l.kinds)-1) {
				l.Log.Warn("rma: rail not opened: keys have no room", "rail", where, "link", kind)
				break
			}
			link, err := links.OpenRail(kind, where, l.Options)
			if err != nil {
				l.Log.Warn("rma: rail not opened", "rail", where, "link", kind, "err", err)
				continue
			}
			l.rails = append(l.rails, Rail{Index: len(l.open), Number: i + 1, Where: where})
			l.open = append(l.open, link)
		}
		return
	}
}

// Rail is a further link of a kind, by which ranks are reached as well.
type Rail struct {
	Index  int // in Links.All
	Number int // from 1
	Where  string
}

// Rails returns the rails to the rank.
func (l *Links) Rails(rank int) []Rail {
	if len(l.rails) == 0 || rank == l.job.Rank() || l.open[l.to[rank]].Name() != l.open[l.rails[0].Index].Name() {
		return nil
	}
	return l.rails
}

// AllRails returns the rails to any rank.
func (l *Links) AllRails() []Rail { return l.rails }

// Kinds returns the kinds of links by which any two ranks of the job are connected; the same
// on all ranks.
func (l *Links) Kinds() map[string]bool { return l.kinds }

// Close closes the links.
func (l *Links) Close() error {
	var errs []error
	for _, s := range l.unfinished {
		errs = append(errs, s.Close())
	}
	for _, link := range l.open {
		errs = append(errs, link.Close())
	}
	return errors.Join(errs...)
}

// offers publishes this rank's offer, and returns the offers of all ranks.
func (l *Links) offers(ctx context.Context, mine links.Offer) ([]links.Offer, error) {
	all, err := l.job.AllGather(ctx, "rma/offer", mine.Append(nil))
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

// agree opens links, publishes them, and chooses one for each rank. If any two ranks of the
// job have none in common, chosen is nil on every rank, and why names the two.
func (l *Links) agree(ctx context.Context, names []string) (chosen []string, why, err error) {
	var open []string
	var reasons []error
	for _, link := range l.open {
		open = append(open, link.Name())
	}
	for _, name := range names {
		if slices.Contains(open, name) {
			continue
		}
		o := l.Options
		o.Fallback = l.Fabric == ""
		link, err := links.Open(name, o)
		if err != nil {
			reasons = append(reasons, err)
			continue
		}
		l.open = append(l.open, link)
		open = append(open, name)
	}
	offers, err := l.offers(ctx, links.NewOffer(open).On(l.Options.Host))
	if err != nil {
		return nil, nil, err
	}
	me := l.job.Rank()
	l.pairs, l.kinds = map[string]pair{}, map[string]bool{}
	chosen = make([]string, l.job.Size())
	for a := range offers {
		for b := range offers[:a+1] {
			name, err := links.Choose(offers[b], offers[a], l.Fabric)
			l.kinds[name] = true
			if a == b && a != me {
				continue // a rank's link to itself does not matter to others
			}
			if err != nil {
				reasons = append([]error{fmt.Errorf("%w: ranks %d and %d: %w", ErrNoConnection, b, a, err)}, reasons...)
				return nil, errors.Join(reasons...), nil
			}
			if _, has := l.pairs[name]; !has && a != b {
				l.pairs[name] = pair{b, a, offers[a].Host == offers[b].Host}
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

// keep closes the links that reach no rank.
func (l *Links) keep(chosen []string) {
	index := map[string]int{}
	var kept []fabric.Link
	for _, link := range l.open {
		if !slices.Contains(chosen, link.Name()) {
			if err := link.Close(); err != nil {
				l.Log.Warn("rma: unused link not closed", "link", link.Name(), "err", err)
			}
			continue
		}
		index[link.Name()] = len(kept)
		kept = append(kept, link)
		round := sampling.Defaults(link.Name())
		l.figures = append(l.figures, figures{Up: &round, Down: &round, source: sampling.FromDefaults.String()})
	}
	l.open = kept
	for rank, name := range chosen {
		l.to = append(l.to, index[name])
		l.Log.Debug("rma: link chosen", "rank", rank, "link", name)
	}
	of := make([]*figures, len(l.to))
	for rank, link := range l.to {
		of[rank] = &l.figures[link]
	}
	l.paths.open(of)
}
