package overlap

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/internal/links"
)

// ErrRequest reports a request that cannot be measured.
var ErrRequest = errors.New("overlap: request")

// tagControl is the tag of control messages; data messages have other tags.
const tagControl = 1

// maxControl bounds a control message, which is JSON.
const maxControl = 4 << 20

// pair is one of the two ranks. Rank 0 decides, rank 1 follows.
type pair struct {
	eng   *rma.Engine
	peer  *rma.Peer
	first bool // rank 0
	perNS float64
}

func newPair(eng *rma.Engine) (*pair, error) {
	if eng.Size() != 2 {
		return nil, fmt.Errorf("%w: %d ranks, want 2", ErrRequest, eng.Size())
	}
	return &pair{eng: eng, peer: eng.Peer(1 - eng.Rank()), first: eng.Rank() == 0, perNS: Calibrate()}, nil
}

// swap exchanges values with the other rank: it sends mine and returns the other's.
func swap[T any](ctx context.Context, p *pair, mine T) (theirs T, err error) {
	b, err := json.Marshal(mine)
	if err != nil {
		return theirs, err
	}
	buf := make([]byte, maxControl)
	in := p.peer.RecvTag(tagControl, buf)
	out := p.peer.SendTag(tagControl, b)
	n, err := in.Wait(ctx)
	if err == nil {
		err = json.Unmarshal(buf[:n], &theirs)
	}
	return theirs, errors.Join(err, out.Wait(ctx))
}

// share returns rank 0's value on both ranks.
func share[T any](ctx context.Context, p *pair, v T) (T, error) {
	theirs, err := swap(ctx, p, v)
	if p.first {
		return v, err
	}
	return theirs, err
}

// processors returns the number of processors that the hosts of both ranks have.
func (p *pair) processors(ctx context.Context) (int, error) {
	type host struct {
		ID   string
		CPUs int
	}
	mine := host{links.HostID(), runtime.NumCPU()}
	theirs, err := swap(ctx, p, mine)
	if theirs.ID != mine.ID {
		return mine.CPUs + theirs.CPUs, err
	}
	return mine.CPUs, err
}

// series runs n iterations of f on this rank, each after a barrier. It returns, on both
// ranks, how long each iteration took on the slower rank, in ns.
func (p *pair) series(ctx context.Context, n int, f func() error) ([]float64, error) {
	mine := make([]float64, n)
	for i := range mine {
		if err := p.eng.Barrier(ctx); err != nil {
			return nil, err
		}
		start := time.Now()
		if err := f(); err != nil {
			return nil, err
		}
		mine[i] = float64(time.Since(start))
	}
	theirs, err := swap(ctx, p, mine)
	if err == nil && len(theirs) != n {
		err = fmt.Errorf("%w: %d times of the other rank, want %d", ErrRequest, len(theirs), n)
	}
	if err != nil {
		return nil, err
	}
	for i := range mine {
		mine[i] = max(mine[i], theirs[i])
	}
	return mine, nil
}
