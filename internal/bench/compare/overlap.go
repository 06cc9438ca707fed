package compare

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/seed33544411/rma/internal/bench/overlap"
)

// Overlap measures communication during computation of MPI libraries. Close it.
type Overlap struct{ *mpiProgram }

// NewOverlap compiles the programs of the named libraries. Errors wrap ErrPeer, ErrFabric or
// ErrMissing.
func NewOverlap(ctx context.Context, fabric string, names []string) (*Overlap, error) {
	m, err := newMPIProgram(ctx, "overlap.c", fabric, names)
	return &Overlap{m}, err
}

// Points returns the number of results of a round.
func (o *Overlap) Points(r *overlap.Request) int { return len(o.libraries) * len(r.Cells()) }

// overlapLimit bounds one run, except for the time of its series.
const overlapLimit = 2 * time.Minute

// Round measures every point of r once with every peer.
func (o *Overlap) Round(ctx context.Context, r *overlap.Request, round int, emit func(overlap.Result) error) error {
	for i := range o.libraries {
		l := &o.libraries[i]
		for _, x := range r.Cells() {
			x.Library, x.Fabric, x.Round = l.name, o.fabric, round
			if err := o.measure(ctx, l, r.Time, &x); err != nil {
				return fmt.Errorf("overlap of %s: %w", l.name, err)
			}
			if err := emit(x); err != nil {
				return err
			}
		}
	}
	return nil
}

// measure measures the point that x describes, and completes x.
func (o *Overlap) measure(ctx context.Context, l *mpiLibrary, series time.Duration, x *overlap.Result) error {
	args := append(overlapArgs(x), strconv.FormatFloat(float64(series)/float64(time.Millisecond), 'g', -1, 64))
	out, err := o.run(ctx, l, overlapLimit+8*series, 2, args...)
	if err != nil {
		return err
	}
	return parseOverlap(out, x)
}

// overlapArgs returns the arguments that name a point.
func overlapArgs(x *overlap.Result) []string {
	return []string{x.Op, strconv.Itoa(x.Size), x.Who, strconv.FormatFloat(x.Factor, 'g', -1, 64)}
}

// parseOverlap reads the line that csrc/overlap.c prints for the point x.
func parseOverlap(out []byte, x *overlap.Result) error {
	want := append([]string{"overlap"}, overlapArgs(x)...)
	v, err := parsePoint(out, "overlap.c", want, 4, func(v []float64) bool {
		return v[0] > 0 && v[2] > 0 && v[3] >= 1 && v[3] <= 1e6
	})
	if err != nil {
		return err
	}
	x.Samples = int(v[3])
	x.Derive(v[0], v[1], v[2])
	return nil
}
