package compare

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed33544411/rma/internal/bench/overlap"
)

// Overlap measures what package overlap does with MPI libraries: transfers during computation, and
// small operations beside computation, waiting threads or streams. Close it.
type Overlap struct{ *mpiProgram }

// NewOverlap compiles the program for requests of the kind what with the named libraries. Errors
// wrap ErrPeer, ErrFabric or ErrMissing.
func NewOverlap(ctx context.Context, what, fabric string, names []string) (*Overlap, error) {
	source := "beside.c"
	if what == "overlap" {
		source = "overlap.c"
	}
	m, err := newMPIProgram(ctx, source, fabric, names)
	return &Overlap{m}, err
}

// cells returns the points of r that MPI libraries have: they cannot wait for signals.
func (*Overlap) cells(r *overlap.Request) []overlap.Result {
	return slices.DeleteFunc(r.Cells(), func(x overlap.Result) bool { return x.Beside == "signals" })
}

// Points returns the number of results of a round.
func (o *Overlap) Points(r *overlap.Request) int { return len(o.libraries) * len(o.cells(r)) }

// overlapLimit bounds one run, except for the time of its series.
const overlapLimit = 3 * time.Minute

// Round measures every point of r once with every library.
func (o *Overlap) Round(ctx context.Context, r *overlap.Request, round int, emit func(overlap.Result) error) error {
	series := strconv.FormatFloat(float64(r.Time)/float64(time.Millisecond), 'g', -1, 64)
	for i := range o.libraries {
		l := &o.libraries[i]
		for _, x := range o.cells(r) {
			x.Library, x.Fabric, x.Round = l.name, o.fabric, round
			args, parse := besideRun(&x, series), parseBeside
			if x.What == "overlap" {
				args, parse = append(overlapArgs(&x), series), parseOverlap
			}
			out, err := o.run(ctx, l, overlapLimit+8*r.Time, 2, nil, args...)
			if err == nil {
				err = parse(out, &x)
			}
			if err != nil {
				return fmt.Errorf("%s %s of %s: %w", x.What, strings.Join(args, " "), l.name, err)
			}
			if err := emit(x); err != nil {
				return err
			}
		}
	}
	return nil
}

// overlapArgs returns the arguments by which csrc/overlap.c names a point.
func overlapArgs(x *overlap.Result) []string {
	return []string{x.Op, strconv.Itoa(x.Size), x.Who, strconv.FormatFloat(x.Factor, 'g', -1, 64)}
}

// parseOverlap reads the line that csrc/overlap.c prints for the point x.
func parseOverlap(out []byte, x *overlap.Result) error {
	want := append([]string{"overlap"}, overlapArgs(x)...)
	v, err := parsePoint(out, "overlap.c", want, 4, "4 numbers", func(v []float64) bool {
		return v[0] > 0 && v[2] > 0 && v[3] >= 1 && v[3] <= 1e6
	})
	if err != nil {
		return err
	}
	x.Samples = int(v[3])
	x.Derive(v[0], v[1], v[2])
	return nil
}

// besideArgs returns the arguments by which csrc/beside.c names a point.
func besideArgs(x *overlap.Result) []string {
	return []string{x.What, x.Op, cmp.Or(x.Beside, "-"), strconv.Itoa(x.Count), strconv.Itoa(x.Size)}
}

// besideRun returns all arguments of csrc/beside.c: with the number of processors that Go has for
// goroutines, here as in the ranks of this library, so that as many threads compute.
func besideRun(x *overlap.Result, series string) []string {
	return append(besideArgs(x), series, strconv.Itoa(runtime.GOMAXPROCS(0)))
}

// parseBeside reads the line that csrc/beside.c prints for the point x.
func parseBeside(out []byte, x *overlap.Result) error {
	v, err := parsePoint(out, "beside.c", besideArgs(x), 6, "6 numbers", func(v []float64) bool {
		return v[0] > 0 && v[1] <= v[2] && v[2] <= v[3] && v[4] >= 1 && v[4] <= 1e9
	})
	if err != nil {
		return err
	}
	x.Mean, x.P50, x.P99, x.Max, x.Samples, x.MBs = v[0], v[1], v[2], v[3], int(v[4]), v[5]
	return nil
}
