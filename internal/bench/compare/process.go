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
	listenTime = 20 * time.Second // until its server listens: emulated machines take seconds
	askEvery   = 5 * time.Millisecond
	graceTime  = 2 * time.Second // from the wish that a process ends to its death
	maxOutput  = 1 << 20
)

// program is a peer ready to run.
type program struct {
	*Peer
	job   Job           // without what differs from run to run
	limit time.Duration // of one run
	pairs int           // of processes, which run at once
}

// Sample is what one run gave.
type Sample struct {
	Figure float64 // in the test's unit; of several pairs the sum of rates, the median of times

	// CPU is what the processes have used, of the user's and the system's time: with
	// their start, and with that of their own children.
	CPU time.Duration
}

// once makes one run of iters iterations, of all pairs at once.
func (p *program) once(ctx context.Context, t Test, iters int) (Sample, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, p.limit, fmt.Errorf("%s: %w in %v", p.Name, ErrStuck, p.limit))
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

// combine makes one sample of those of pairs that ran at once.
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
	if job.Port, err = freePort(); err != nil {
		return s, err
	}
	plan, err := p.Plan(job)
	if err != nil {
		return s, err
	}
	if plan.PinsItself {
		job.Cores = nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var said, out, told bounded // by the server, by the client: output, diagnostics
	var srv *exec.Cmd
	var served error // once done is closed
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
			job.Cores = nil // a launcher needs them all
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

// command is one process; it ends with ctx, and with it the group of processes
// that it leads: asked first, for a launcher stops what it has started.
func command(ctx context.Context, args, env []string, out, diag *bounded) *exec.Cmd {
	c := exec.CommandContext(ctx, args[0], args[1:]...)
	c.Env = append(os.Environ(), env...)
	c.Stdout, c.Stderr = out, diag
	c.WaitDelay = graceTime // then it is killed
	lead(c)
	return c
}

// wait waits for c, and ends whatever it leaves behind.
func wait(c *exec.Cmd) error {
	defer sweep(c)
	return c.Wait()
}

func spent(c *exec.Cmd) time.Duration {
	return c.ProcessState.UserTime() + c.ProcessState.SystemTime()
}

// bounded is a buffer that forgets what exceeds maxOutput.
type bounded struct{ bytes.Buffer }

func (b *bounded) Write(p []byte) (int, error) {
	if room := maxOutput - b.Len(); room < len(p) {
		b.Buffer.Write(p[:max(room, 0)])
		return len(p), nil
	}
	return b.Buffer.Write(p)
}

// tail is the last line that any of outs holds, for an error.
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
