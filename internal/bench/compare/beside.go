package compare

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed33544411/rma/internal/bench/overlap"
)

// besideLimit bounds one run of csrc/beside.c, except for the time of its series.
const besideLimit = 3 * time.Minute

// Beside measures small operations of MPI libraries beside computation, waiting threads or
// streams. Close it.
type Beside struct{ *mpiProgram }

// NewBeside compiles the programs of the named libraries. Errors wrap ErrPeer, ErrFabric or
// ErrMissing.
func NewBeside(ctx context.Context, fabric string, names []string) (*Beside, error) {
	m, err := newMPIProgram(ctx, "beside.c", fabric, names)
	return &Beside{m}, err
}

// cells returns the points of r that MPI libraries have: they cannot wait for signals.
func (*Beside) cells(r *overlap.Request) []overlap.Result {
	return slices.DeleteFunc(r.Cells(), func(x overlap.Result) bool { return x.Beside == "signals" })
}

// Points returns the number of results of a round.
func (b *Beside) Points(r *overlap.Request) int { return len(b.libraries) * len(b.cells(r)) }

// Round measures every point of r once with every library.
func (b *Beside) Round(ctx context.Context, r *overlap.Request, round int, emit func(overlap.Result) error) error {
	for i := range b.libraries {
		l := &b.libraries[i]
		for _, x := range b.cells(r) {
			x.Library, x.Fabric, x.Round = l.name, b.fabric, round
			args := besideArgs(&x)
			out, err := b.run(ctx, l, besideLimit+8*r.Time, 2, append(args, strconv.FormatFloat(float64(r.Time)/float64(time.Millisecond), 'g', -1, 64))...)
			if err == nil {
				err = parseBeside(out, &x)
			}
			if err != nil {
				return fmt.Errorf("%s of %s: %w", strings.Join(args, " "), l.name, err)
			}
			if err := emit(x); err != nil {
				return err
			}
		}
	}
	return nil
}

// besideArgs returns the arguments that name a point.
func besideArgs(x *overlap.Result) []string {
	return []string{x.What, x.Op, cmp.Or(x.Beside, "-"), strconv.Itoa(x.Count), strconv.Itoa(x.Size)}
}

// parseBeside reads the line that csrc/beside.c prints for the point x.
func parseBeside(out []byte, x *overlap.Result) error {
	v, err := parsePoint(out, "beside.c", besideArgs(x), 6, func(v []float64) bool {
		return v[0] > 0 && v[1] <= v[2] && v[2] <= v[3] && v[4] >= 1 && v[4] <= 1e9
	})
	if err != nil {
		return err
	}
	x.Mean, x.P50, x.P99, x.Max, x.Samples, x.MBs = v[0], v[1], v[2], v[3], int(v[4]), v[5]
	return nil
}
