package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/bench"
	"github.com/seed33544411/rma/internal/jobenv"
	"github.com/seed33544411/rma/internal/links"
	"github.com/seed33544411/rma/internal/wireup"
)

// Emit gets every result as it arrives, on rank 0.
type Emit = func(bench.Result) error

// ErrSize reports a job with too few ranks.
var ErrSize = errors.New("measuring needs a job of at least 2 ranks")

// InJob measures between ranks 0 and 1 of the job that the environment describes; the
// other ranks wait. Every rank calls it with the same request. shows is true on rank 0,
// the only one with results to show.
func InJob(ctx context.Context, req bench.Request, emit Emit) (shows bool, err error) {
	return inJob(ctx, points(req, emit))
}

// part is what rank 0 or 1 of a job does to measure between the two.
type part func(ctx context.Context, job *wireup.Job, o links.Options) error

// inJob runs both on ranks 0 and 1 of the job that the environment describes, with links
// over which the two reach each other.
func inJob(ctx context.Context, both part) (shows bool, err error) {
	cfg, err := jobenv.FromEnv()
	if err != nil {
		return true, err
	}
	if cfg.Size < 2 {
		return true, fmt.Errorf("%w, this one has %d (rmarun -n 2 …)", ErrSize, cfg.Size)
	}
	job, err := wireup.Join(ctx, cfg)
	if err != nil {
		return cfg.Rank == 0, err
	}
	defer func() { err = errors.Join(err, job.Close()) }()
	if cfg.Rank > 1 {
		return false, wait(ctx, job)
	}
	o, err := reachable(ctx, job)
	if err != nil {
		return cfg.Rank == 0, err
	}
	return cfg.Rank == 0, both(ctx, job, o)
}

// reachable returns options for links over which ranks 0 and 1 reach each other, whether
// or not they are on one host.
func reachable(ctx context.Context, job *wireup.Job) (o links.Options, err error) {
	theirs, err := swapOffers(ctx, job, "bench/host", links.NewOffer(nil))
	if err == nil {
		o.Reachable(theirs.Host == links.HostID(), job.LocalAddr())
	}
	return o, err
}

// swapOffers exchanges offers with the other rank.
func swapOffers(ctx context.Context, job *wireup.Job, key string, mine links.Offer) (theirs links.Offer, err error) {
	if err := job.Put(ctx, key, mine.Append(nil)); err != nil {
		return theirs, err
	}
	b, err := job.Get(ctx, 1-job.Rank(), key)
	if err != nil {
		return theirs, err
	}
	return links.ParseOffer(b)
}

// wait waits until the measuring ranks have left.
func wait(ctx context.Context, job *wireup.Job) error {
	for r := range 2 {
		select {
		case <-job.Gone(r):
		case <-job.Done():
			return job.Err()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// settle is how long a rank may take to finish after the other has left: it has already
// received everything that it needs.
const settle = 2 * time.Second

// points is bench.Run in a job.
func points(req bench.Request, emit Emit) part {
	return between(&req.Fabric, func(ctx context.Context, ctl bench.Control, open bench.Opener) error {
		return bench.Run(ctx, ctl, open, req, emit)
	})
}

// between runs run on ranks 0 and 1 and cancels it when the other rank is gone. If the
// request names no fabric, rank 0 uses that of the environment.
func between(fabric *string, run func(context.Context, bench.Control, bench.Opener) error) part {
	return func(ctx context.Context, job *wireup.Job, o links.Options) error {
		return runBetween(ctx, job, o, fabric, run)
	}
}

func runBetween(ctx context.Context, job *wireup.Job, o links.Options, fabric *string, run func(context.Context, bench.Control, bench.Opener) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	over := make(chan struct{})
	defer close(over)
	other := 1 - job.Rank()
	go func() {
		// A link may notice the death of a peer late, or never (shared memory); the
		// wire-up server does.
		select {
		case <-over:
			return
		case <-job.Done():
		case <-job.Gone(other):
		}
		t := time.NewTimer(settle)
		defer t.Stop()
		select {
		case <-over:
		case <-t.C:
			if err := job.Err(); err != nil {
				cancel(err)
				return
			}
			cancel(fmt.Errorf("%w: rank %d (%s)", wireup.ErrPeerGone, other, job.GoneReason(other)))
		}
	}()
	ctl := bench.NewControl(job, job.Rank())
	forced, o, err := links.FromEnv(o) // each rank has an environment of its own
	if err = bench.Agree(ctx, ctl, err); err == nil {
		if job.Rank() == 0 && forced != "" && (*fabric == "" || *fabric == "auto") {
			*fabric = forced
		}
		err = run(ctx, ctl, opener(job, o))
	}
	if err != nil && job.Rank() == 1 {
		// Rank 0 reports the error. A launcher that saw this rank fail first would stop
		// rank 0 before its report.
		select {
		case <-job.Gone(0):
		case <-job.Done():
		case <-time.After(settle):
		}
	}
	return err
}

// opener returns an Opener that opens and connects a fabric's link in a job.
func opener(job *wireup.Job, o links.Options) bench.Opener {
	return func(ctx context.Context, name string, depth int) (c bench.Conn, done func() error, err error) {
		other := 1 - job.Rank()
		if name, err = links.Canonical(name); err == nil && name == "" {
			name, err = choose(ctx, job, o)
		}
		if err != nil {
			return c, nil, err
		}
		l, err := links.Open(name, o)
		if err != nil {
			// The other side may be waiting in Connect.
			return c, nil, errors.Join(err, tell(ctx, job, err))
		}
		if err := tell(ctx, job, nil); err != nil {
			return c, nil, errors.Join(err, l.Close())
		}
		ep, err := links.Connect(ctx, job, l, other, links.ConnectOptions{EndpointOptions: fabric.EndpointOptions{ID: uint32(other), Depth: depth}, Tag: "bench"})
		if err != nil {
			return c, nil, errors.Join(err, l.Close())
		}
		done = sync.OnceValue(func() error { return errors.Join(ep.Close(), l.Close()) })
		return bench.Conn{Fabric: links.Kind(name), Link: l, EP: ep, ID: uint32(other)}, done, nil
	}
}

// errOther stands for an error that the other rank has already reported.
var errOther = errors.New("the other rank could not open the link")

// tell exchanges whether the link is open on both ranks.
func tell(ctx context.Context, job *wireup.Job, mine error) error {
	text := []byte{}
	if mine != nil {
		text = []byte(mine.Error())
	}
	if err := job.Put(ctx, "bench/open", text[:min(len(text), 1000)]); err != nil {
		return err
	}
	theirs, err := job.Get(ctx, 1-job.Rank(), "bench/open")
	if err == nil && mine == nil && len(theirs) > 0 {
		err = fmt.Errorf("%w: %w: %q", bench.ErrPeerFailed, errOther, theirs)
	}
	return err
}

// choose returns the link for fabric `auto`.
func choose(ctx context.Context, job *wireup.Job, o links.Options) (string, error) {
	var open []string
	for _, s := range links.Probe(o) {
		if s.Usable {
			open = append(open, s.Name)
		}
	}
	mine := links.NewOffer(open)
	theirs, err := swapOffers(ctx, job, "bench/offer", mine)
	if err != nil {
		return "", err
	}
	if job.Rank() == 1 { // both sides must use the same order
		mine, theirs = theirs, mine
	}
	return links.Choose(mine, theirs, "")
}

// Usable returns the fabrics that work on this machine, by their names for --fabric.
func Usable() []string {
	var out []string
	for _, s := range links.Probe(links.Options{}) {
		if s.Usable {
			out = append(out, links.Kind(s.Name))
		}
	}
	slices.Sort(out)
	return out
}
