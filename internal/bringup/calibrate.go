package bringup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/progress"
	"github.com/seed33544411/rma/logp"
	"github.com/seed33544411/rma/sampling"
)

// Calibrate gets the figures of every link: the first pair of ranks that a kind
// of link joins loads or measures them, and tells the others. A measurement that
// fails costs precision, nothing else. All ranks call it. d connects the pair, and p
// takes the completions that are not of the measurement. Setup path.
func (l *Links) Calibrate(ctx context.Context, d *Dialer, p progress.Protocol) error {
	for i, link := range l.open {
		who, has := l.pairs[link.Name()]
		if l.Sampling == sampling.Off || !has {
			continue
		}
		var err error
		if me := l.job.Rank(); me == who.low || me == who.high {
			m := &measurement{Links: l, d: d, proto: p, link: i, pair: who, first: me == who.low, peer: who.low + who.high - me}
			err = m.tell(ctx)
		} else {
			err = l.hear(ctx, i, who.low)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Params are the parameters of the link to the rank, towards it. They are not changed.
func (l *Links) Params(rank int) *logp.Params {
	f := &l.figures[l.to[rank]]
	if l.job.Rank() < rank {
		return f.Up
	}
	return f.Down
}

// topic is the key under which the figures of a link are published.
func (l *Links) topic(link int) string { return "profile/" + l.open[link].Name() }

// hear takes the figures of a link from the rank that has measured it.
func (l *Links) hear(ctx context.Context, link, from int) error {
	b, err := l.job.Get(ctx, from, l.topic(link))
	if err != nil {
		return err
	}
	p, err := parsePublished(b)
	if err != nil {
		l.Log.Warn("rma: figures of a link", "link", l.open[link].Name(), "from", from, "err", err)
		return nil
	}
	l.figures[link] = p.figures
	l.useCopies(link, p.Copies, p.Class)
	return nil
}

// Profile is where the figures of a link are kept, nil if nowhere, and under
// which key: those of the class of the first pair that it joins stand for all, once
// that is known.
func (l *Links) Profile(link int) (*sampling.Store, sampling.Key) {
	k := sampling.Key{Link: l.open[link].Name(), Device: l.Options.Device, Class: l.figures[link].Class, Version: sampling.Version}
	dir := l.Profiles
	if dir == "" {
		var err error
		if dir, err = sampling.DefaultDir(); err != nil {
			l.Log.Debug("rma: no folder for figures of links", "err", err)
			return nil, k
		}
	}
	return &sampling.Store{Dir: dir}, k
}

// measurement is one rank's side of the measurement of a link.
type measurement struct {
	*Links
	d     *Dialer
	proto progress.Protocol
	link  int
	pair  pair
	first bool
	peer  int
}

// tell measures, and tells the other ranks.
func (m *measurement) tell(ctx context.Context) error {
	name := m.open[m.link].Name()
	res, err := m.sample(ctx)
	switch {
	case err == nil:
	case ctx.Err() != nil || errors.Is(err, fabric.ErrPeerGone):
		return fmt.Errorf("measure %s: %w", name, err)
	default:
		m.Log.Warn("rma: link not measured", "link", name, "err", err)
		if !m.first {
			return m.hearCopies(ctx, m.link, m.pair.low, m.topic(m.link))
		}
		return m.job.Put(ctx, m.topic(m.link), nil)
	}
	f := &m.figures[m.link]
	up, down := res.Out(), res.In()
	if !m.first {
		up, down = down, up
	}
	f.Up, f.Down = &up, &down
	m.Log.Debug("rma: link measured", "link", name, "source", res.Source,
		"took", res.Spent(), "batches", res.Fit.Probes, "errors", res.Fit.Error)
	m.Measured = append(m.Measured, res)
	if res.SaveErr != nil {
		m.Log.Warn("rma: figures of a link are not saved", "link", name, "err", res.SaveErr)
	}
	if !m.first {
		return m.hearCopies(ctx, m.link, m.pair.low, m.topic(m.link))
	}
	copies := m.findCopies(m.link, f.Class)
	m.useCopies(m.link, copies, f.Class)
	b, err := json.Marshal(published{publishedVersion, *f, copies})
	if err != nil {
		return fmt.Errorf("measure %s: %w", name, err)
	}
	return m.job.Put(ctx, m.topic(m.link), b)
}

// sample runs this side of the measurement: of single operations, and, where those were
// not in a profile, of whole batches.
func (m *measurement) sample(ctx context.Context) (res sampling.Result, err error) {
	ep, err := m.d.Connect(ctx, m.peer)
	if err != nil {
		return res, err
	}
	m.figures[m.link].Class = sampling.ClassOf(ep, m.pair.sameHost)
	o := sampling.Options{
		First: m.first, EP: uint32(m.peer), Mode: m.Sampling, Later: true,
		Budget: time.Duration(curveShare * float64(m.Budget)),
		Other:  m.others,
	}
	o.Store, o.Key = m.Profile(m.link)
	s, err := sampling.Open(m.open[m.link], ep, o)
	if err != nil {
		return res, err
	}
	ran := false
	defer func() {
		if ran && err != nil {
			// The peer may still write into the session's memory, and must not
			// find it gone: that would take the connection down.
			m.unfinished = append(m.unfinished, s)
			return
		}
		err = errors.Join(err, s.Close())
	}()
	setup := s.Setup()
	b, err := m.swap(ctx, "sample/"+m.open[m.link].Name()+"/", setup.Append(nil))
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
	m.d.prog.Do(func() { res, err = s.Run(ctx) })
	if err != nil || res.Source != sampling.FromMeasurement {
		return res, err
	}
	if err := m.playBatches(ctx, &res); err != nil {
		return res, err
	}
	res.SaveErr = s.Save(res)
	return res, nil
}

// others passes on completions that are not the measurement's.
func (m *measurement) others(c *fabric.Completion) {
	one := [1]fabric.Completion{*c}
	m.proto.Complete(m.link, one[:])
}

// swap gives b to the peer, and takes what it gives.
func (m *measurement) swap(ctx context.Context, topic string, b []byte) ([]byte, error) {
	if err := m.job.Put(ctx, topic+strconv.Itoa(m.peer), b); err != nil {
		return nil, err
	}
	return m.job.Get(ctx, m.peer, topic+strconv.Itoa(m.job.Rank()))
}
