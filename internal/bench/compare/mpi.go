package compare

import (
	"os"
	"slices"
	"strconv"

	"github.com/seed33544411/rma/internal/cpu"
)

// openmpi is Open MPI. Ping-pong is by NetPIPE, the other tests by csrc/mpi.c, because no
// package has a program for them.
var openmpi = &Peer{
	Name: "openmpi", About: "Open MPI: NPopenmpi; streams and puts by a program of ours, with mpicc",
	Needs: []Need{
		{Program: "mpirun.openmpi", Package: "openmpi-bin"},
		{Program: "NPopenmpi", Package: "netpipe-openmpi"},
		{Program: "mpicc.openmpi", Header: "mpi.h", Package: "libopenmpi-dev gcc libc6-dev"},
	},
	Tests:   map[string][]Kind{"shm": Kinds, "tcp": Kinds},
	Version: []string{"mpirun.openmpi", "--version"},
	Plan:    openmpiPlan, Prepare: compile("mpicc.openmpi", "mpi.c"), Parse: parseMPI("NPopenmpi"), Trial: 200, WarmUp: mpiWarmUp,
}

func openmpiPlan(j Job) (Plan, error) {
	launch, env, err := openmpiLaunch(&j)
	return Plan{Env: env, Client: mpiRanks(launch, "NPopenmpi", &j)}, err
}

// openmpiLaunch restricts Open MPI to one path between the ranks: the ob1 layer over one byte
// transfer layer. On tcp it also excludes the one-sided component that uses shared memory
// for windows of ranks on one host.
func openmpiLaunch(j *Job) (launch, env []string, err error) {
	launch = []string{"mpirun.openmpi", "--bind-to", "none", "--oversubscribe", "--mca", "pml", "ob1", "--mca", "orte_tmpdir_base", j.Dir}
	switch j.Fabric {
	case "shm":
		launch = append(launch, "--mca", "btl", "self,vader")
	default:
		launch = append(launch, "--mca", "btl", "self,tcp", "--mca", "btl_tcp_if_include", "lo", "--mca", "osc", "^sm")
	}
	if os.Geteuid() == 0 { // mpirun refuses to run as root otherwise, and a container may have no other user
		env = []string{"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"}
	}
	return launch, env, nil
}

// mpich is MPICH, in Debian's build above UCX; see openmpi.
var mpich = &Peer{
	Name: "mpich", About: "MPICH: NPmpich2; streams and puts by a program of ours, with mpicc",
	Needs: []Need{
		{Program: "mpirun.mpich", Package: "mpich"},
		{Program: "NPmpich2", Package: "netpipe-mpich2"},
		{Program: "mpicc.mpich", Header: "mpi.h", Package: "libmpich-dev gcc libc6-dev"},
	},
	Tests:   map[string][]Kind{"shm": Kinds, "tcp": Kinds},
	Version: []string{"mpichversion"},
	Plan:    mpichPlan, Prepare: compile("mpicc.mpich", "mpi.c"), Parse: parseMPI("NPmpich2"), Trial: 200, WarmUp: mpiWarmUp,
}

func mpichPlan(j Job) (Plan, error) {
	launch, env, err := mpichLaunch(&j)
	return Plan{Env: env, Client: mpiRanks(launch, "NPmpich2", &j)}, err
}

// mpichLaunch restricts UCX as the peer ucx does. On tcp it makes the ranks believe that
// they are on different hosts: otherwise MPICH prefers its own shared memory.
func mpichLaunch(j *Job) (launch, env []string, err error) {
	env, err = ucxEnv(j.Fabric, &j.Place)
	if j.Fabric == "tcp" {
		env = append(env, "MPIR_CVAR_NOLOCAL=1")
	}
	return []string{"mpirun.mpich"}, env, err
}

// mpiRanks returns a launcher's arguments for the two ranks of j.Test.
func mpiRanks(launch []string, pingpong string, j *Job) []string {
	return mpiSides(launch, j, func(side int) []string {
		if j.Test.Kind != Lat {
			return []string{compiled(j.Dir), cTests[j.Test.Kind], strconv.Itoa(j.Test.Size), strconv.Itoa(j.Iters)}
		}
		out := []string{"/dev/stdout", "/dev/null"}[side]
		return slices.Concat([]string{pingpong}, netpipeArgs(j), []string{"-o", out})
	})
}

// mpiSides returns a launcher's arguments for two ranks, each pinned to a processor.
func mpiSides(launch []string, j *Job, program func(side int) []string) []string {
	return append(launch, mpiEach(2, func(side int) []string {
		p := program(side)
		if core, pinned := j.Core(side); pinned {
			p = bound(cpu.Of(core), p)
		}
		return p
	})...)
}

// mpiEach returns a launcher's arguments for ranks that each have a program of their own.
func mpiEach(ranks int, program func(rank int) []string) (out []string) {
	for r := range ranks {
		if r > 0 {
			out = append(out, ":")
		}
		out = append(append(out, "-n", "1"), program(r)...)
	}
	return out
}

// bound returns the arguments of a program that is bound to processors, by taskset, because launchers number
// processors in different ways.
func bound(s cpu.Set, program []string) []string {
	return append([]string{"taskset", "-c", s.String()}, program...)
}

// parseMPI parses the output of the program that mpiRanks chose.
func parseMPI(pingpong string) func(out []byte, j Job) (float64, error) {
	np, c := parseNetpipe(pingpong), parseC("mpi.c")
	return func(out []byte, j Job) (float64, error) {
		if j.Test.Kind == Lat {
			return np(out, j)
		}
		return c(out, j)
	}
}

// mpiWarmUp is the warm-up of the program that mpiRanks chose.
func mpiWarmUp(k Kind, n int) int {
	if k == Lat {
		return trials(k, n)
	}
	return aTenth(k, n)
}
