package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/tempdir"
	"github.com/seed33544411/rma/internal/wireup"
)

// StartupRequest asks how much the parameters of the cost model add to the start of an
// engine.
type StartupRequest struct {
	Fabric string        `json:"fabric"`
	Rounds int           `json:"rounds"` // zero means DefaultStartupRounds
	Budget time.Duration `json:"budget"` // of the measurement; zero means the engine's default
}

// DefaultStartupRounds is enough to measure medians of differences of tens of µs between
// starts of milliseconds.
const DefaultStartupRounds = 41

// Startup is the time of Open on rank 0 in µs. Its JSON form is one line; fields are
// only ever added.
type Startup struct {
	Fabric   string  `json:"fabric"`
	Off      float64 `json:"off_us"`      // without any sampling, the median
	Cached   float64 `json:"cached_us"`   // with a saved profile, the median
	Measured float64 `json:"measured_us"` // of the first start, which measures and saves
	Added    float64 `json:"added_us"`    // median over the rounds of cached less off
	Noise    float64 `json:"noise_us"`    // median difference of two starts without sampling
	Rounds   int     `json:"rounds"`
	Machine  Machine `json:"machine"`
}

// Check reports why the request cannot be carried out. Both sides call it.
func (r *StartupRequest) Check() error {
	if r.Rounds == 0 {
		r.Rounds = DefaultStartupRounds
	}
	if r.Rounds < 1 || r.Rounds > maxCount {
		return fmt.Errorf("%w: %d rounds, want 1 to %d", ErrPlan, r.Rounds, maxCount)
	}
	if r.Budget < 0 || r.Budget > maxTime {
		return fmt.Errorf("%w: budget %v", ErrPlan, r.Budget)
	}
	return nil
}

// starts are the starts of a round. Two are without sampling: their difference is the
// noise of the machine.
var starts = [...]rma.Sampling{rma.SamplingOff, rma.SamplingCached, rma.SamplingOff}

// MeasureStartup starts engines of two ranks repeatedly, with and without a saved
// profile, in alternation. Both ranks call it, rank 1 with a zero request. Rank 0 gets
// the result, rank 1 nil. Profiles are in a temporary directory.
func MeasureStartup(ctx context.Context, ctl Control, req StartupRequest) (res *Startup, err error) {
	if err := Share(ctx, ctl, &req, req.Check); err != nil {
		return nil, err
	}
	dir, err := tempdir.New("", "rmabench-")
	if err = agree(ctx, ctl, err); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	s := &starter{ctl: ctl, req: &req, dir: dir.Path}
	first, err := s.start(ctx, rma.SamplingCached) // there is no saved profile yet
	if err != nil {
		return nil, err
	}
	var took [len(starts)][]float64
	for r := range req.Rounds {
		for i := range starts {
			i = (i + r) % len(starts)
			us, err := s.start(ctx, starts[i])
			if err != nil {
				return nil, err
			}
			took[i] = append(took[i], us)
		}
	}
	if ctl.Rank() != 0 {
		return nil, nil
	}
	var added, noise []float64
	for r := range req.Rounds {
		off := (took[0][r] + took[2][r]) / 2
		added, noise = append(added, took[1][r]-off), append(noise, max(took[0][r]-took[2][r], took[2][r]-took[0][r]))
	}
	return &Startup{Fabric: s.fabric, Off: Median(slices.Concat(took[0], took[2])), Cached: Median(took[1]), Measured: first,
		Added: Median(added), Noise: Median(noise), Rounds: req.Rounds, Machine: ThisMachine()}, nil
}

// starter starts engines, one after another.
type starter struct {
	ctl    Control
	req    *StartupRequest
	dir    string
	n      int
	fabric string // over which the peer is reached
}

// start opens an engine on both ranks and returns how long this rank took, in µs.
func (s *starter) start(ctx context.Context, sampling rma.Sampling) (us float64, err error) {
	s.n++
	job, srv, err := jobBeside(ctx, s.ctl, "unix:"+filepath.Join(s.dir, fmt.Sprint(s.n)))
	if srv != nil {
		defer func() { err = errors.Join(err, srv.Close()) }()
	}
	if err != nil {
		return 0, err
	}
	cfg := &rma.Config{
		Job: job, Fabric: rma.Fabric(s.req.Fabric),
		Sampling: sampling, SamplingBudget: s.req.Budget, Profiles: s.dir,
	}
	t := cpu.Ticks()
	e, err := rma.Open(ctx, cfg)
	us = float64(cpu.Ticks()-t) * cpu.NsPerTick() / 1e3
	if err == nil {
		s.fabric = e.Peer(1 - s.ctl.Rank()).Link()
		err = errors.Join(e.Barrier(ctx), e.Close())
	}
	return us, agree(ctx, s.ctl, err)
}

// jobBeside returns a job of its own for the two ranks of ctl, on one host. srv is its server, on
// rank 0, whose root is used.
func jobBeside(ctx context.Context, ctl Control, root string) (job *rma.Job, srv io.Closer, err error) {
	if ctl.Rank() == 0 {
		var ln net.Listener
		if ln, err = new(net.ListenConfig).Listen(ctx, "unix", root[len("unix:"):]); err == nil {
			var s *wireup.Server
			if s, err = wireup.Serve(ctx, ln, wireup.ServerConfig{Size: 2}); err == nil {
				srv = s
			}
		}
	}
	if err := agree(ctx, ctl, err); err != nil {
		return nil, srv, err
	}
	theirs, err := ctl.Exchange(ctx, []byte(root))
	if ctl.Rank() == 1 {
		root = string(theirs)
	}
	return &rma.Job{Rank: ctl.Rank(), Size: 2, Root: root}, srv, err
}

// WriteText writes the figures for people.
func (s *Startup) WriteText(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "start of an engine over %s, two ranks, %d rounds\tµs\t\n", s.Fabric, s.Rounds)
	for _, r := range []struct {
		name string
		us   float64
	}{{"without sampling", s.Off}, {"with a saved profile", s.Cached}, {"that measures and saves one", s.Measured}, {"added by a saved profile", s.Added}, {"noise of a round", s.Noise}} {
		fmt.Fprintf(t, "%s\t%.0f\t\n", r.name, r.us)
	}
	return t.Flush()
}
