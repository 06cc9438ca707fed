package rma

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/logp"
	"github.com/seed33544411/rma/sampling"
)

// pair is who measures a kind of link for the job: two ranks, low first.
type pair struct {
	low, high int
	sameHost  bool
}

// linkParams are the figures of a link, from lower ranks to higher ones and
// back. Nil: round figures.
type linkParams struct {
	up, down *logp.Params
	class    sampling.Class // of the pair that they were measured by; "" if nobody measured
}

// to is what describes the way from a rank to another.
func (l *linkParams) to(from, to int) *logp.Params {
	if from < to {
		return l.up
	}
	return l.down
}

// calibrate gets the figures of every link: the first pair of ranks that a kind
// of link joins loads or measures them, and tells the others. A measurement that
// fails costs precision, nothing else.
func (e *Engine) calibrate(ctx context.Context) error {
	e.params = make([]linkParams, len(e.links))
	mode, _ := sampling.ParseMode(string(e.cfg.Sampling)) // checked with the config
	for i, l := range e.links {
		figures := sampling.Defaults(l.Name())
		e.params[i] = linkParams{up: &figures, down: &figures}
		who, has := e.pairs[l.Name()]
		if mode == sampling.Off || !has {
			continue
		}
		topic := "profile/" + l.Name()
		me := e.Rank()
		if me != who.low && me != who.high {
			b, err := e.job.Get(ctx, who.low, topic)
			if err != nil {
				return err
			}
			extra, err := e.params[i].parse(b)
			if err != nil {
				e.cfg.Logger.Warn("rma: figures of a link", "link", l.Name(), "from", who.low, "err", err)
			}
			e.useCopies(i, extra)
			continue
		}
		res, err := e.sample(ctx, i, who, mode)
		var blob []byte
		if err == nil {
			up, down := res.Out(), res.In()
			if me == who.high {
				up, down = down, up
			}
			e.params[i].up, e.params[i].down = &up, &down
			extra := linkExtra{Class: e.params[i].class}
			if me == who.low {
				extra.Copies = e.findCopies(i, mode, extra.Class)
				e.useCopies(i, extra)
			}
			blob, err = json.Marshal([]any{up, down, extra})
			e.cfg.Logger.Debug("rma: link measured", "link", l.Name(), "source", res.Source,
				"took", res.Spent(), "batches", res.Fit.Probes, "errors", res.Fit.Error)
			e.measured = append(e.measured, res)
		}
		if err == nil && res.SaveErr != nil {
			e.cfg.Logger.Warn("rma: figures of a link are not saved", "link", l.Name(), "err", res.SaveErr)
		}
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, fabric.ErrPeerGone) {
				return fmt.Errorf("measure %s: %w", l.Name(), err)
			}
			e.cfg.Logger.Warn("rma: link not measured", "link", l.Name(), "err", err)
			blob = nil
		}
		if me == who.low {
			err = e.job.Put(ctx, topic, blob)
		} else {
			err = e.hearCopies(ctx, i, who.low, topic)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// parse reads figures that another rank has published, and what came with them.
func (l *linkParams) parse(b []byte) (extra linkExtra, err error) {
	var raw []json.RawMessage
	if err := json.Unmarshal(b, &raw); err != nil || len(raw) != 3 {
		return extra, fmt.Errorf("no figures: %w", err)
	}
	up, err := logp.ParseParams(raw[0])
	if err != nil {
		return extra, err
	}
	down, err := logp.ParseParams(raw[1])
	if err != nil {
		return extra, err
	}
	if extra, err = parseExtra(raw[2]); err == nil {
		*l = linkParams{&up, &down, extra.Class}
	}
	return extra, err
}

// sample runs this side of the measurement of a link: of single operations, and,
// where those were not in a profile, of whole batches.
func (e *Engine) sample(ctx context.Context, link int, who pair, mode sampling.Mode) (res sampling.Result, err error) {
	peer, me := who.high, e.Rank()
	if me == who.high {
		peer = who.low
	}
	o := sampling.Options{
		First: me == who.low, EP: uint32(peer), Mode: mode, Later: true,
		Budget: time.Duration(curveShare * float64(e.cfg.SamplingBudget)),
		Other:  e.others(link),
	}
	ep, err := e.peers[peer].connected(ctx)
	if err != nil {
		return res, err
	}
	e.params[link].class = sampling.ClassOf(ep, who.sameHost)
	o.Store, o.Key = e.profile(link)
	s, err := sampling.Open(e.links[link], ep, o)
	if err != nil {
		return res, err
	}
	ran := false
	defer func() {
		if ran && err != nil {
			// The peer may still write into the session's memory, and must not
			// find it gone: that would take the connection down.
			e.halves = append(e.halves, s)
			return
		}
		err = errors.Join(err, s.Close())
	}()
	setup, topic := s.Setup(), "sample/"+e.links[link].Name()+"/"
	b, err := e.swap(ctx, peer, topic, setup.Append(nil))
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
	e.prog.Do(func() { res, err = s.Run(ctx) })
	if err != nil || res.Source != sampling.FromMeasurement {
		return res, err
	}
	if err := e.fit(ctx, link, peer, o.First, &res); err != nil {
		return res, err
	}
	res.SaveErr = s.Save(res)
	return res, nil
}

// profile is where the figures of a link are kept, nil if nowhere, and under
// which key: those of the class of the first pair that it joins stand for all, once
// that is known.
func (e *Engine) profile(link int) (*sampling.Store, sampling.Key) {
	name := e.links[link].Name()
	k := sampling.Key{Link: name, Device: e.cfg.Device, Class: e.params[link].class, Version: sampling.Version}
	dir := e.cfg.Profiles
	if dir == "" {
		var err error
		if dir, err = sampling.DefaultDir(); err != nil {
			e.cfg.Logger.Debug("rma: no folder for figures of links", "err", err)
			return nil, k
		}
	}
	return &sampling.Store{Dir: dir}, k
}

// others hands on completions that are not a measurement's.
func (e *Engine) others(link int) func(*fabric.Completion) {
	return func(c *fabric.Completion) {
		one := [1]fabric.Completion{*c}
		e.proto.Complete(link, one[:])
	}
}

// swap gives b to a peer, and takes what it gives.
func (e *Engine) swap(ctx context.Context, peer int, topic string, b []byte) ([]byte, error) {
	if err := e.job.Put(ctx, topic+strconv.Itoa(peer), b); err != nil {
		return nil, err
	}
	return e.job.Get(ctx, peer, topic+strconv.Itoa(e.Rank()))
}
