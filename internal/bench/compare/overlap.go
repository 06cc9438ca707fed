package compare

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed33544411/rma/internal/bench/overlap"
)

// mpiLibrary is an MPI library whose overlap of communication and computation is measured by
// csrc/overlap.c.
type mpiLibrary struct {
	name   string
	needs  []Need
	cc     string
	env    []string
	launch func(j *Job) (launch, env []string, err error)
}

// mpiLibraries are the peers of Overlap.
var mpiLibraries = []mpiLibrary{
	{"openmpi", withoutNetpipe(openmpi.Needs), "mpicc.openmpi", nil, openmpiLaunch},
	{"mpich", withoutNetpipe(mpich.Needs), "mpicc.mpich", nil, mpichLaunch},
	{"mpich-async", withoutNetpipe(mpich.Needs), "mpicc.mpich", []string{"MPICH_ASYNC_PROGRESS=1", "MPIR_CVAR_ASYNC_PROGRESS=1"}, mpichLaunch},
}

func withoutNetpipe(needs []Need) (out []Need) {
	for _, n := range needs {
		if !strings.HasPrefix(n.Program, "NP") {
			out = append(out, n)
		}
	}
	return out
}

// OverlapPeers returns the names of the peers of Overlap. mpich-async is MPICH with its
// progress thread.
func OverlapPeers() (names []string) {
	for _, l := range mpiLibraries {
		names = append(names, l.name)
	}
	return names
}

// Overlap measures communication during computation of other libraries. Close it.
type Overlap struct {
	dir       string
	fabric    string
	libraries []mpiLibrary
}

// NewOverlap compiles the programs of the named peers. Errors wrap ErrPeer, ErrFabric or
// ErrMissing.
func NewOverlap(ctx context.Context, fabric string, names []string) (o *Overlap, err error) {
	o = &Overlap{fabric: fabric}
	if fabric != "shm" && fabric != "tcp" {
		return nil, fmt.Errorf("overlap of peers over %s: %w: want shm or tcp", fabric, ErrFabric)
	}
	for _, n := range names {
		i := slices.IndexFunc(mpiLibraries, func(l mpiLibrary) bool { return l.name == n })
		if i < 0 {
			return nil, fmt.Errorf("%w %q: want some of %s", ErrPeer, n, strings.Join(OverlapPeers(), ", "))
		}
		l := mpiLibraries[i]
		if err := (&Peer{Name: l.name, Needs: l.needs, Tests: openmpi.Tests}).Missing(fabric); err != nil {
			return nil, err
		}
		o.libraries = append(o.libraries, l)
	}
	if o.dir, err = os.MkdirTemp("", "rmabench-overlap-"); err != nil {
		return nil, err
	}
	for _, l := range o.libraries {
		if err = os.Mkdir(filepath.Join(o.dir, l.name), 0o700); err == nil {
			err = compile(l.cc, "overlap.c")(ctx, filepath.Join(o.dir, l.name))
		}
		if err != nil {
			return nil, errors.Join(err, o.Close())
		}
	}
	return o, nil
}

// Close removes the programs.
func (o *Overlap) Close() error { return os.RemoveAll(o.dir) }

// Points returns the number of results of a round.
func (o *Overlap) Points(r *overlap.Request) int {
	return len(o.libraries) * len(r.Ops) * len(r.Sizes) * len(r.Who) * len(r.Ratios)
}

// overlapLimit bounds one run, except for the time of its series.
const overlapLimit = 2 * time.Minute

// Round measures every point of r once with every peer.
func (o *Overlap) Round(ctx context.Context, r *overlap.Request, round int, emit func(overlap.Result) error) error {
	for _, l := range o.libraries {
		for _, op := range r.Ops {
			for _, size := range r.Sizes {
				for _, who := range r.Who {
					for _, factor := range r.Ratios {
						x := overlap.Result{
							What: "overlap", Library: l.name, Fabric: o.fabric, Round: round,
							Op: op, Size: size, Who: who, Factor: factor,
						}
						if err := o.run(ctx, &l, r.Time, &x); err != nil {
							return fmt.Errorf("overlap of %s: %w", l.name, err)
						}
						if err := emit(x); err != nil {
							return err
						}
					}
				}
			}
		}
	}
	return nil
}

// run measures the point that x describes, and completes x.
func (o *Overlap) run(ctx context.Context, l *mpiLibrary, series time.Duration, x *overlap.Result) error {
	limit := overlapLimit + 8*series
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("%w in %v", ErrStuck, limit))
	defer cancel()
	j := &Job{Fabric: o.fabric, Place: Place{Addr: "127.0.0.1"}, Dir: filepath.Join(o.dir, l.name)}
	launch, env, err := l.launch(j)
	if err != nil {
		return err
	}
	program := append([]string{compiled(j.Dir)}, overlapArgs(x)...)
	program = append(program, strconv.FormatFloat(float64(series)/float64(time.Millisecond), 'g', -1, 64))
	args := mpiSides(launch, j, func(int) []string { return program })
	var out, told bounded
	c := command(ctx, args, slices.Concat(env, l.env), &out, &told)
	if err := c.Start(); err != nil {
		return err
	}
	if err := wait(c); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return fmt.Errorf("%s: %w%s", args[0], err, tail(&told, &out))
	}
	return parseOverlap(out.Bytes(), x)
}

// overlapArgs returns the arguments that name a point.
func overlapArgs(x *overlap.Result) []string {
	return []string{x.Op, strconv.Itoa(x.Size), x.Who, strconv.FormatFloat(x.Factor, 'g', -1, 64)}
}

// parseOverlap reads the line that csrc/overlap.c prints for the point x.
func parseOverlap(out []byte, x *overlap.Result) error {
	want := append([]string{"overlap"}, overlapArgs(x)...)
	bad := &OutputError{Program: "overlap.c", Want: strings.Join(want, " ") + " and three times and a number", Line: lastLine(out)}
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if len(f) != len(want)+4 || !slices.Equal(f[:len(want)], want) {
			continue
		}
		v, ok := numbers(f[len(want):], 4)
		if !ok || v[0] <= 0 || v[2] <= 0 || v[3] < 1 || v[3] > 1e6 {
			bad.Line = strings.TrimSpace(line)
			return bad
		}
		x.Samples = int(v[3])
		x.Derive(v[0], v[1], v[2])
		return nil
	}
	return bad
}
