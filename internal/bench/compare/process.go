package compare

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed33544411/rma/internal/bench"
)

// Bounds of one run of a peer.
const (
	listenTime = 20 * time.Second // until a server listens: seconds on emulated machines
	askEvery   = 5 * time.Millisecond
	graceTime  = 2 * time.Second // from the request to end to the kill
	maxOutput  = 1 << 20
)

// program is a peer ready to run.
type program struct {
	*Peer
	job   Job // without the fields that differ between runs
	pairs int // pairs of processes that run at once
}

// Sample is the result of one run.
type Sample struct {
	Figure float64 // in the test's unit; for several pairs the sum of rates, the median of times

	// CPU is the user and system time that the processes have used, including their start
	// and their own children.
	CPU time.Duration
}

// once makes one run of iters iterations on all pairs at once.
func (p *program) once(ctx context.Context, t Test, iters int) (Sample, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, p.job.Limit, fmt.Errorf("%s: %w in %v", p.Name, ErrStuck, p.job.Limit))
	defer cancel()
	all := make([]Sample, max(p.pairs, 1))
	g, gctx := errgroup.WithContext(ctx)
	for i := range all {
		g.Go(func() (err error) {
			all[i], err = p.pair(gctx, t, iters)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return Sample{}, err
	}
	return t.combine(all), nil
}

// combine combines the samples of pairs that ran at once.
func (t Test) combine(all []Sample) (s Sample) {
	var figures []float64
	for _, x := range all {
		figures = append(figures, x.Figure)
		s.Figure += x.Figure
		s.CPU += x.CPU
	}
	if t.less() {
		s.Figure = bench.Median(figures)
	}
	return s
}

// pair makes one run of one pair of processes.
func (p *program) pair(ctx context.Context, t Test, iters int) (s Sample, err error) {
	job := p.job
	job.Test, job.Iters = t, iters
	job.Port = freePort()
	plan, err := p.Plan(job)
	if err != nil {
		return s, err
	}
	if plan.PinsItself {
		job.Cores = nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var said, out, told bounded // server's output; client's output; diagnostics
	var srv *exec.Cmd
	var served error // valid once done is closed
	done := make(chan struct{})
	if len(plan.Server) > 0 {
		srv = command(ctx, plan.Server, plan.Env, &said, &said)
		if err := start(srv, &job.Place, serverSide); err != nil {
			return s, fmt.Errorf("start %s: %w", plan.Server[0], err)
		}
		go func() {
			defer close(done)
			served = wait(srv)
		}()
		err = ready(ctx, plan.Socket, job.Port, done)
	}
	cli := command(ctx, plan.Client, plan.Env, &out, &told)
	if err == nil {
		if srv == nil {
			job.Cores = nil // a launcher needs all processors
		}
		if err = start(cli, &job.Place, clientSide); err == nil {
			err = wait(cli)
		}
	}
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		cancel()
		if srv != nil {
			<-done
		}
		return s, fmt.Errorf("%s %v: %w%s", plan.Client[0], t, err, tail(&told, &out, &said))
	}
	s.CPU = spent(cli)
	if srv != nil {
		if <-done; served != nil {
			return s, fmt.Errorf("%s %v, server: %w%s", plan.Server[0], t, served, tail(&said))
		}
		s.CPU += spent(srv)
	}
	s.Figure, err = p.Parse(out.Bytes(), job)
	return s, err
}

// command returns a process that ends with ctx, together with the process group that it
// leads. It is first asked to end, so that a launcher can stop its processes.
func command(ctx context.Context, args, env []string, out, diag *bounded) *exec.Cmd {
	c := exec.CommandContext(ctx, args[0], args[1:]...)
	c.Env = append(os.Environ(), env...)
	c.Stdout, c.Stderr = out, diag
	c.WaitDelay = graceTime // afterwards it is killed
	lead(c)
	return c
}

// run starts c, waits for it, and ends the rest of its group.
func run(c *exec.Cmd) error {
	if err := c.Start(); err != nil {
		return err
	}
	return wait(c)
}

// wait waits for c and ends the rest of its group.
func wait(c *exec.Cmd) error {
	defer sweep(c)
	return c.Wait()
}

func spent(c *exec.Cmd) time.Duration {
	return c.ProcessState.UserTime() + c.ProcessState.SystemTime()
}

// bounded is a buffer that discards output beyond maxOutput.
type bounded struct{ bytes.Buffer }

func (b *bounded) Write(p []byte) (int, error) {
	if room := maxOutput - b.Len(); room < len(p) {
		b.Buffer.Write(p[:max(room, 0)])
		return len(p), nil
	}
	return b.Buffer.Write(p)
}

// tail returns the last line of any of outs, for an error.
func tail(outs ...*bounded) string {
	for _, o := range outs {
		if last := lastLine(o.Bytes()); last != "" {
			return fmt.Sprintf(": %.200q", last)
		}
	}
	return ""
}

func lastLine(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}
