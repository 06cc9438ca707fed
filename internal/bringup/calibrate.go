package bringup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/links"
	"github.com/seed33544411/rma/internal/progress"
	"github.com/seed33544411/rma/sampling"
)

// Calibrate obtains the figures of every link: the first pair of ranks that a kind of link
// connects loads or measures them, and publishes them to the others. A failed measurement
// costs precision, nothing else. All ranks call it. d connects the pair, and p gets the
// completions that are not of the measurement. Paths of other classes are surveyed later,
// when they are first used: see survey.go. Setup path.
func (l *Links) Calibrate(ctx context.Context, d *Dialer, p progress.Protocol) error {
	defer d.spare()()
	for i := range l.figures { // rails have none
		link := l.open[i]
		who, has := l.pairs[link.Name()]
		if l.Sampling == sampling.Off || !has {
			continue
		}
		var err error
		if me := l.job.Rank(); me == who.low || me == who.high {
			m := &measurement{
				Links: l, job: l.job, at: i, link: link, own: d.prog.Do, first: me == who.low, peer: who.low + who.high - me, budget: l.Budget,
				others: func(c *fabric.Completion) { one := [1]fabric.Completion{*c}; p.Complete(i, one[:]) },
			}
			err = m.run(ctx, d, who)
		} else {
			err = l.adopt(ctx, i, who.low)
		}
		if err != nil {
			return err
		}
		if f := &l.figures[i]; f.Class != "" {
			l.paths.add(i, f)
		}
	}
	close(l.calibrated)
	return nil
}

// topic is the key under which the figures of a link are published.
func (l *Links) topic(link int) string { return "profile/" + l.open[link].Name() }

// adopt gets the parameters of a link from the rank that has measured it.
func (l *Links) adopt(ctx context.Context, link, from int) error {
	b, err := l.job.Get(ctx, from, l.topic(link))
	if err != nil {
		return err
	}
	if len(b) == 0 {
		return nil // that rank has logged why
	}
	p, err := parsePublished(b)
	if err != nil {
		l.Log.Warn("rma: parameters of a link not valid", "link", l.open[link].Name(), "from", from, "err", err)
		return nil
	}
	l.figures[link] = p.figures
	l.figures[link].source = fmt.Sprintf("rank %d", from)
	l.useCopies(link, p.Copies, p.Class)
	return nil
}

// Profile returns the store and the key of the saved figures of a link and a class of
// peers. The store is nil if there is no directory for it.
func (l *Links) Profile(link int, class sampling.Class) (*sampling.Store, sampling.Key) {
	k := sampling.Key{Link: l.open[link].Name(), Device: l.Options.Device, Class: class, Version: sampling.Version}
	dir := l.Profiles
	if dir == "" {
		var err error
		if dir, err = sampling.DefaultDir(); err != nil {
			l.Log.Debug("rma: no directory for saved parameters", "err", err)
			return nil, k
		}
	}
	return &sampling.Store{Dir: dir}, k
}

// measurement is one rank's side of the measurement of a path.
type measurement struct {
	*Links
	job    links.Job // through which the two sides exchange values
	at     int       // the kind of link, by its index
	link   fabric.Link
	own    func(func())             // runs its argument as the link's owner
	others func(*fabric.Completion) // gets completions that are not of the measurement; nil: there are none
	class  sampling.Class           // of the peer
	suffix string                   // of the job's keys: unique to this measurement among those of the pair and the kind of link
	first  bool
	peer   int
	budget time.Duration
	bytes  int64               // bound for both directions together; 0: none
	naps   bool                // waits sleep
	kept   []*sampling.Session // failed ones: the peer may still write to their memory
	moved  int64               // bytes
}

// run measures over the first connection of the pair, and publishes the figures to the
// other ranks.
func (m *measurement) run(ctx context.Context, d *Dialer, who pair) error {
	name := m.link.Name()
	ep, err := d.Connect(ctx, m.peer)
	var res sampling.Result
	f := &m.figures[m.at]
	if err == nil {
		f.Class = sampling.ClassOf(ep, who.sameHost)
		m.class = f.Class
		res, err = m.sample(ctx, ep)
		m.unfinished = append(m.unfinished, m.kept...)
	}
	switch {
	case err == nil && m.class.IsLong() && m.PathBudget > 0 && !res.Known(m.class):
		// A start has no time for round trips of milliseconds. The path is measured when it
		// is used, as those of other classes: see survey.go.
		f.Class = ""
		m.Log.Debug("rma: link not measured at the start", "link", name, "class", m.class)
		if !m.first {
			return nil
		}
		return m.Links.job.Put(ctx, m.topic(m.at), nil)
	case err == nil:
	case ctx.Err() != nil || errors.Is(err, fabric.ErrPeerGone):
		return fmt.Errorf("measure %s: %w", name, err)
	default:
		f.Class = ""
		m.Log.Warn("rma: link not measured", "link", name, "err", err)
		if !m.first {
			return m.hearCopies(ctx, m.at, who.low, m.topic(m.at))
		}
		return m.Links.job.Put(ctx, m.topic(m.at), nil)
	}
	*f = m.figuresOf(&res)
	m.Measured = append(m.Measured, res)
	if !m.first {
		return m.hearCopies(ctx, m.at, who.low, m.topic(m.at))
	}
	copies := m.findCopies(m.at, f.Class)
	m.useCopies(m.at, copies, f.Class)
	b, err := json.Marshal(published{publishedVersion, *f, copies})
	if err != nil {
		return fmt.Errorf("measure %s: %w", name, err)
	}
	return m.Links.job.Put(ctx, m.topic(m.at), b)
}

// figuresOf returns the figures of a result, and logs them.
func (m *measurement) figuresOf(res *sampling.Result) figures {
	up, down := res.Out(), res.In()
	if !m.first {
		up, down = down, up
	}
	name := m.link.Name()
	m.Log.Debug("rma: link measured", "link", name, "class", m.class, "source", res.Source,
		"took", res.Spent(), "batches", res.Fit.Probes, "errors", res.Fit.Error)
	if res.SaveErr != nil {
		m.Log.Warn("rma: parameters of a link not saved", "link", name, "err", res.SaveErr)
	}
	return figures{Up: &up, Down: &down, Class: m.class, source: res.Source.String()}
}

// sample runs this side of the measurement: of single operations and, if these were not
// loaded from a profile, of whole batches.
func (m *measurement) sample(ctx context.Context, ep fabric.Endpoint) (res sampling.Result, err error) {
	o := sampling.Options{
		First: m.first, EP: uint32(m.peer), Mode: m.Sampling, Later: true,
		Budget: time.Duration(curveShare * float64(m.budget)), MaxBytes: int64(curveShare * float64(m.bytes)), Background: m.naps,
		Other: m.others,
	}
	o.Store, o.Key = m.Profile(m.at, m.class)
	s, err := sampling.Open(m.link, ep, o)
	if err != nil {
		return res, err
	}
	ran := false
	defer func() {
		if ran && err != nil {
			// Keep the session's memory registered: the peer may still write to it, and a
			// refused write would take the connection down.
			m.kept = append(m.kept, s)
			return
		}
		err = errors.Join(err, s.Close())
	}()
	setup := s.Setup()
	b, err := m.swap(ctx, "sample", setup.Append(nil))
	if err != nil {
		return res, err
	}
	theirs, _, err := sampling.ParseSetup(b)
	if err == nil {
		err = s.Connect(theirs)
	}
	if err != nil {
		return res, err
	}
	ran = true
	m.own(func() { res, err = s.Run(ctx) })
	m.moved += res.Bytes
	if err != nil || res.Source != sampling.FromMeasurement {
		return res, err
	}
	if err := m.playBatches(ctx, &res); err != nil {
		return res, err
	}
	res.SaveErr = s.Save(res)
	return res, nil
}

// swap sends b to the peer, and returns the peer's value.
func (m *measurement) swap(ctx context.Context, what string, b []byte) ([]byte, error) {
	key := what + "/" + m.link.Name() + "/" + m.suffix
	if err := m.job.Put(ctx, key+strconv.Itoa(m.peer), b); err != nil {
		return nil, err
	}
	return m.job.Get(ctx, m.peer, key+strconv.Itoa(m.job.Rank()))
}
