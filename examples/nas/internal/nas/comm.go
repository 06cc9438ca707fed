package nas

import (
	"context"
	"time"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/coll"
)

// Comm is a rank's communication, timed: collectives of all ranks, and what a benchmark
// adds by Communicated.
type Comm struct {
	eng   *rma.Engine
	team  *coll.Team
	began time.Time // zero: the clock stands
	total time.Duration
	comm  time.Duration
}

func newComm(eng *rma.Engine) (*Comm, error) {
	team, err := coll.World(eng)
	return &Comm{eng: eng, team: team}, err
}

// Engine returns the engine.
func (c *Comm) Engine() *rma.Engine { return c.eng }

// Rank returns this rank.
func (c *Comm) Rank() int { return c.eng.Rank() }

// Size returns the number of ranks.
func (c *Comm) Size() int { return c.eng.Size() }

// Start begins the time of the benchmark, when all ranks have called it.
func (c *Comm) Start(ctx context.Context) error {
	err := coll.Barrier(ctx, c.team)
	c.began, c.comm = time.Now(), 0
	return err
}

// Stop ends the time of the benchmark on this rank.
func (c *Comm) Stop() { c.total, c.began = time.Since(c.began), time.Time{} }

// Communicated adds the time since from to that of communication, between Start and Stop:
//
//	defer c.Communicated(time.Now())
func (c *Comm) Communicated(from time.Time) {
	if !c.began.IsZero() {
		c.comm += time.Since(from)
	}
}

// Sum adds the elements of v of all ranks, in place.
func Sum[T coll.Number](ctx context.Context, c *Comm, v []T) error {
	defer c.Communicated(time.Now())
	return coll.Allreduce(ctx, c.team, nil, v, coll.Sum)
}

// Allgather copies send of rank r to block r of recv.
func Allgather[T any](ctx context.Context, c *Comm, send, recv []T) error {
	defer c.Communicated(time.Now())
	return coll.Allgather(ctx, c.team, send, recv)
}

// Alltoall copies block r of send to rank r, as the block of this rank in recv there.
func Alltoall[T any](ctx context.Context, c *Comm, send, recv []T) error {
	defer c.Communicated(time.Now())
	return coll.Alltoall(ctx, c.team, send, recv)
}

// Alltoallv is Alltoall with blocks of different lengths.
func Alltoallv[T any](ctx context.Context, c *Comm, send, recv [][]T) error {
	defer c.Communicated(time.Now())
	return coll.Alltoallv(ctx, c.team, send, recv)
}

// times returns those of all ranks.
func (c *Comm) times(ctx context.Context) (times, error) {
	longest, sum := []time.Duration{c.total}, []time.Duration{c.comm}
	err := coll.Allreduce(ctx, c.team, nil, longest, coll.Max)
	if err == nil {
		err = coll.Allreduce(ctx, c.team, nil, sum, coll.Sum)
	}
	return times{total: longest[0], comm: sum[0] / time.Duration(c.Size())}, err
}
