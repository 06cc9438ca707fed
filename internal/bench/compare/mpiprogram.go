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

	"github.com/seed33544411/rma/internal/tempdir"
	"github.com/seed33544411/rma/internal/topo"
)

// mpiLibrary is an MPI library that programs of csrc are compiled with.
type mpiLibrary struct {
	name   string
	needs  []Need
	cc     string
	env    []string
	launch func(j *Job) (launch, env []string, err error)
}

// mpiLibraries are the peers of Overlap and Collective. mpich-async is MPICH with its progress
// thread.
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

// MPINames returns the names of the MPI libraries.
func MPINames() (names []string) {
	for _, l := range mpiLibraries {
		names = append(names, l.name)
	}
	return names
}

// mpiProgram is a program of csrc, compiled with several MPI libraries.
type mpiProgram struct {
	source    string
	dir       *tempdir.Dir
	fabric    string
	libraries []mpiLibrary
}

// newMPIProgram compiles a source with the named libraries. Errors wrap ErrPeer, ErrFabric or
// ErrMissing.
func newMPIProgram(ctx context.Context, source, fabric string, names []string) (m *mpiProgram, err error) {
	m = &mpiProgram{source: source, fabric: fabric}
	if fabric != "shm" && fabric != "tcp" {
		return nil, fmt.Errorf("MPI libraries over %s: %w: want shm or tcp", fabric, ErrFabric)
	}
	for _, n := range names {
		i := slices.IndexFunc(mpiLibraries, func(l mpiLibrary) bool { return l.name == n })
		if i < 0 {
			return nil, fmt.Errorf("%w %q: want some of %s", ErrPeer, n, strings.Join(MPINames(), ", "))
		}
		l := mpiLibraries[i]
		if err := (&Peer{Name: l.name, Needs: l.needs, Tests: openmpi.Tests}).Missing(fabric); err != nil {
			return nil, err
		}
		m.libraries = append(m.libraries, l)
	}
	if m.dir, err = tempdir.New("", "rmabench-mpi-"); err != nil {
		return nil, err
	}
	for _, l := range m.libraries {
		if err = os.Mkdir(filepath.Join(m.dir.Path, l.name), 0o700); err == nil {
			err = compile(l.cc, source)(ctx, filepath.Join(m.dir.Path, l.name))
		}
		if err != nil {
			return nil, errors.Join(err, m.Close())
		}
	}
	return m, nil
}

// Close removes the programs.
func (m *mpiProgram) Close() error { return m.dir.Close() }

// run starts the program of a library with args on ranks of this host, which are bound to places if
// there are any, and returns its output.
func (m *mpiProgram) run(ctx context.Context, l *mpiLibrary, limit time.Duration, ranks int, places []topo.Binding, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("%w in %v", ErrStuck, limit))
	defer cancel()
	j := &Job{Fabric: m.fabric, Place: Place{Addr: "127.0.0.1"}, Dir: filepath.Join(m.dir.Path, l.name)}
	launch, env, err := l.launch(j)
	if err != nil {
		return nil, err
	}
	launch = append(launch, mpiBound(append([]string{compiled(j.Dir)}, args...), ranks, places)...)
	var out, told bounded
	c := command(ctx, launch, slices.Concat(env, l.env), &out, &told)
	if err := run(c); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, fmt.Errorf("%s: %w%s", launch[0], err, tail(&told, &out))
	}
	return out.Bytes(), nil
}

// mpiBound returns a launcher's arguments for ranks of a program, each bound to its place if there are any.
func mpiBound(program []string, ranks int, places []topo.Binding) []string {
	if places == nil {
		return append([]string{"-n", strconv.Itoa(ranks)}, program...)
	}
	return mpiEach(len(places), func(r int) []string { return bound(places[r].CPUs, program) })
}
