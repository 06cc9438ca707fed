package bringup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/links"
	"github.com/seed33544411/rma/sampling"
)

// A survey gives a connection the parameters of its path, if the peer is of another class
// than the pair that has measured the link in Calibrate. It runs in a goroutine of the
// connection and uses a link of its own, so that no operation waits for it:
//
//	lower rank                            higher rank
//	figures of the class: known, or saved
//	  publish them, KeyPath         ──►   uses them
//	else KeyPath, the class         ──►
//	measures, and saves             ◄──►  measures, and saves
//	uses them for all peers of the class  likewise
//
// A rank measures with one peer at a time. There is no deadlock: the leading rank takes its
// own turn before it asks a higher rank, which then takes its turn.

// surveyTime bounds a survey whose peer no longer answers: it exceeds the longest
// measurement, and several that the peer may have to make before.
const surveyTime = time.Minute

// publishedPath is the name of published figures, for Connection.Publish.
const publishedPath = "figures"

// errUnwilling says that the peer does not take part in a measurement.
var errUnwilling = errors.New("the peer does not measure")

// survey determines the class and the figures of the path of a connection that is made. In
// a goroutine of the connection.
func (n *Connection) survey() {
	k, ok := n.pathKind()
	if !ok {
		return
	}
	l, rank := n.c.d.links, n.c.rank
	if l.paths.arrive(rank, k) {
		n.c.replan()
	}
	close(n.placed)
	if l.job.Rank() > rank || l.figures[k.link].Class == k.class {
		return // the peer leads, or the path has the class of the first pair
	}
	ctx, cancel := context.WithTimeout(n.life, surveyTime)
	defer cancel()
	n.report(k, n.lead(ctx, k))
}

// report logs why a path has not got its figures, unless the connection has ended.
func (n *Connection) report(k pathKind, err error) {
	if l := n.c.d.links; err != nil && n.life.Err() == nil {
		l.Log.Warn("rma: path not measured", "rank", n.c.rank, "link", l.open[k.link].Name(), "class", k.class, "err", err)
	}
}

// pathKind waits until the connection is made and the figures of its link are known. ok is
// false if the connection fails or ends.
func (n *Connection) pathKind() (k pathKind, ok bool) {
	l := n.c.d.links
	for _, c := range []chan struct{}{n.done, l.calibrated} {
		select {
		case <-c:
		case <-n.life.Done():
			return k, false
		}
	}
	if n.ep == nil {
		return k, false
	}
	sameHost := l.hosts[n.c.rank].Host == l.hosts[l.job.Rank()].Host
	return pathKind{n.c.link, sampling.ClassOf(n.ep, sameHost)}, true
}

// replan makes the Peer use the present figures of the path.
func (c *Connector) replan() { c.d.prog.Do(c.peer.Replan) }

// lead is the lower rank's part.
func (n *Connection) lead(ctx context.Context, k pathKind) error {
	l := n.c.d.links
	if err := l.paths.take(ctx); err != nil {
		return err
	}
	defer l.paths.leave()
	f := l.paths.figures(k)
	if f == nil {
		if f = saved(l, k); f != nil {
			l.paths.add(k.link, f)
			n.learned(k, f)
		}
	}
	if f == nil {
		if l.PathBudget < 0 || l.paths.hopeless(k) {
			return nil
		}
		if err := l.job.Send(ctx, n.c.rank, KeyPath, append(n.Numbered(), k.class...)); err != nil {
			return err
		}
		return n.measure(ctx, k, true)
	}
	b, err := json.Marshal(published{Version: publishedVersion, figures: *f})
	if err == nil {
		err = n.Publish(ctx, publishedPath, b)
	}
	if err == nil {
		err = l.job.Send(ctx, n.c.rank, KeyPath, n.Numbered())
	}
	return err
}

// follow is the higher rank's part, after the lower one has asked it to measure a class or,
// with an empty class, has published figures. The peer is not trusted: its figures are used
// for the path to it alone. In a goroutine of the connection.
func (n *Connection) follow(class sampling.Class) {
	k, ok := n.pathKind()
	if !ok {
		return
	}
	select {
	case <-n.placed: // what the peer says counts, if it sees another class, too
	case <-n.life.Done():
		return
	}
	l, rank := n.c.d.links, n.c.rank
	ctx, cancel := context.WithTimeout(n.life, surveyTime)
	defer cancel()
	var err error
	switch {
	case class == "":
		var b []byte
		var p published
		if b, err = n.Published(ctx, publishedPath); err == nil {
			p, err = parsePublished(b)
		}
		if err == nil {
			p.source = fmt.Sprintf("rank %d", rank)
			l.paths.use(rank, &p.figures)
			n.c.replan()
		}
	case !class.Known():
		err = fmt.Errorf("unknown class %.40q", class)
	default:
		k.class = class
		if err = l.paths.take(ctx); err == nil {
			err = n.measure(ctx, k, false)
			l.paths.leave()
		}
	}
	n.report(k, err)
}

// take begins this rank's turn to measure.
func (p *paths) take(ctx context.Context) error {
	select {
	case p.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// leave ends the turn.
func (p *paths) leave() { <-p.turn }

// saved loads the figures of a class; nil if there are no valid ones.
func saved(l *Links, k pathKind) *figures {
	store, key := l.Profile(k.link, k.class)
	if store == nil || l.Sampling == sampling.Force {
		return nil
	}
	p, err := store.Load(key, l.open[k.link].Caps())
	if err != nil {
		l.Log.Debug("rma: no saved parameters of a path", "link", key.Link, "class", k.class, "why", err)
		return nil
	}
	return &figures{Up: &p.Tables.Forward, Down: &p.Tables.Backward, Class: k.class, source: sampling.FromProfile.String()}
}

// learned makes all paths of the class use the new figures.
func (n *Connection) learned(k pathKind, f *figures) {
	d, l := n.c.d, n.c.d.links
	l.paths.use(n.c.rank, f)
	n.c.replan()
	for _, rank := range l.paths.waiting(l.to, k.link, f) {
		l.paths.use(rank, f)
		d.peers[rank].replan()
	}
}

// measure measures the path together with the peer, over a link opened for the purpose.
func (n *Connection) measure(ctx context.Context, k pathKind, first bool) error {
	l := n.c.d.links
	m := &measurement{
		Links: l, job: connectionJob{n}, at: k.link, own: func(f func()) { f() }, class: k.class, naps: k.class.IsLong(),
		suffix: fmt.Sprintf("%s/%d/", k.class, n.Number), first: first, peer: n.c.rank,
		budget: l.PathBudget, bytes: l.PathBytes,
	}
	if !m.naps {
		m.budget = min(m.budget, l.Budget)
	}
	start := time.Now()
	f, err := m.apart(ctx)
	if err != nil {
		l.paths.failed(k, time.Since(start), m.moved)
		return err
	}
	l.paths.measured(k, &f, time.Since(start), m.moved)
	n.learned(k, &f)
	return nil
}

// ready is the answer of a side that takes part.
const ready = "ready"

// apart measures over a link and an endpoint of its own, which it closes.
func (m *measurement) apart(ctx context.Context) (f figures, err error) {
	word := ready
	if m.PathBudget < 0 {
		word = "measures no paths"
	}
	m.link = m.open[m.at] // for the keys
	link, err := links.Open(m.link.Name(), m.Options)
	if err != nil {
		word = err.Error()
	} else {
		m.link = link
		defer func() {
			for _, s := range m.kept {
				err = errors.Join(err, s.Close())
			}
			err = errors.Join(err, link.Close())
		}()
	}
	answer, swapped := m.swap(ctx, "path", []byte(word))
	switch {
	case err != nil || swapped != nil:
		return f, errors.Join(err, swapped)
	case string(answer) != ready || word != ready:
		return f, fmt.Errorf("%w: %.200q", errUnwilling, answer)
	}
	ep, err := links.Connect(ctx, m.job, link, m.peer, links.ConnectOptions{
		EndpointOptions: fabric.EndpointOptions{ID: uint32(m.peer), Depth: m.Depth, PeerTimeout: m.PeerTimeout}, Tag: m.suffix,
	})
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, ep.Close()) }()
	res, err := m.sample(ctx, ep)
	if err != nil {
		return f, err
	}
	// Neither side closes before the other has finished.
	if _, err := m.swap(ctx, "path/done", nil); err != nil {
		return f, err
	}
	if !res.Known(m.class) {
		return f, sampling.ErrUnsure
	}
	return m.figuresOf(&res), nil
}

// connectionJob is the job of a measurement that belongs to a connection: its published
// values are removed with the connection.
type connectionJob struct{ n *Connection }

// Rank implements links.Job.
func (j connectionJob) Rank() int { return j.n.c.d.links.job.Rank() }

// Put implements links.Job.
func (j connectionJob) Put(ctx context.Context, key string, val []byte) error {
	return j.n.put(ctx, key, val)
}

// Get implements links.Job.
func (j connectionJob) Get(ctx context.Context, rank int, key string) ([]byte, error) {
	return j.n.c.d.links.job.Get(ctx, rank, key)
}
