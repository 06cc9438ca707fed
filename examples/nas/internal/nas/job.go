package nas

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/examples/internal/command"
)

// Kernel is one benchmark.
type Kernel struct {
	Name string
	// Run solves the problem of a class with all ranks. It calls Comm.Start and Comm.Stop
	// around what is timed.
	Run func(ctx context.Context, c *Comm, class Class) (Result, error)
}

// ErrUnverified is the error of a run whose result differs from the specification's.
var ErrUnverified = errors.New("the result is not the specification's")

// Main is the main function of a benchmark's command.
func Main(k Kernel) {
	class := flag.String("class", "S", fmt.Sprintf("problem size: one of %s", Classes))
	command.Main(func(ctx context.Context) error {
		eng, err := rma.Open(ctx, nil)
		if err != nil {
			return err
		}
		return errors.Join(k.Solve(ctx, eng, Class(*class), os.Stdout), eng.Close())
	})
}

// Solve runs the benchmark on the engine's job, of which all ranks must call it, and rank 0
// writes the report to out. A result that is not verified is an error on all ranks.
func (k Kernel) Solve(ctx context.Context, eng *rma.Engine, class Class, out io.Writer) error {
	c, err := newComm(eng)
	if err != nil {
		return err
	}
	r, err := k.Run(ctx, c, class)
	if err != nil {
		return err
	}
	t, err := c.times(ctx)
	if err == nil && eng.Rank() == 0 {
		err = r.print(out, k.Name, class, eng.Size(), eng.Peer(eng.Size()-1).Link(), t)
	}
	if err == nil {
		err = eng.Barrier(ctx) // nobody leaves while others still communicate
	}
	if err == nil && !r.Verified {
		err = ErrUnverified
	}
	return err
}

// PowerOfTwo returns an error unless the number of ranks is a power of two, at most limit.
func (c *Comm) PowerOfTwo(limit int) error {
	if n := c.Size(); n&(n-1) != 0 || n > limit {
		return fmt.Errorf("%d ranks: want a power of two, at most %d", n, limit)
	}
	return nil
}

// Share returns the part [from, to) that this rank has of n things. Parts differ by at most
// one.
func (c *Comm) Share(n int) (from, to int) { return c.ShareOf(c.Rank(), n) }

// ShareOf is Share of another rank.
func (c *Comm) ShareOf(rank, n int) (from, to int) {
	part := func(r int) int { return int(int64(n) * int64(r) / int64(c.Size())) }
	return part(rank), part(rank + 1)
}
