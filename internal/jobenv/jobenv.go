package jobenv

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/seed33544411/rma/internal/wireup"
)

// Names of the environment variables that control Find.
const (
	EnvLauncher = "RMA_LAUNCHER" // a launcher's name, or none; empty or auto: detected by its variables
	EnvServe    = "RMA_SERVE"    // 1: rank 0 runs the wire-up server itself; 0: it does not
	EnvService  = "RMA_SERVICE"  // Kubernetes: headless service of the job's pods, with an optional :port
)

// ErrNoRoot says that the place where the ranks meet is unknown. It wraps
// wireup.ErrEnvironment.
var ErrNoRoot = fmt.Errorf("%w: no address for the wire-up of the ranks", wireup.ErrEnvironment)

// Found is the job of this process.
type Found struct {
	wireup.Config
	Launcher  string // "rma", "openmpi", "mpich" (any PMI-1), "slurm", "kubernetes"; "none" for a job of one
	LocalSize int    // ranks on this host; 0 if the launcher does not say
}

// InJob reports whether the environment describes a job of some launcher, completely or in
// part; Find rejects the latter.
func InJob() bool {
	return find(os.Getenv) != nil || os.Getenv(wireup.EnvRoot) != "" && os.Getenv(EnvLauncher) != "none"
}

// Find finds the job of this process. Without one it returns rank 0 of 1.
// Errors wrap wireup.ErrEnvironment.
func Find() (Found, error) { return from(os.Getenv) }

// FromEnv returns the Config of Find, to join the job with.
func FromEnv() (wireup.Config, error) {
	f, err := Find()
	return f.Config, err
}

// env is an environment; tests have their own.
type env func(name string) string

// launcher is a launcher's way to describe a job in the environment. here reports whether
// it has done so; read parses the description.
type launcher struct {
	name string
	here func(env) bool
	read func(env) (*place, error)
}

// launchers lists the launchers by precedence: first the user's own variables, then the
// launcher closest to the process. With mpirun inside an srun or sbatch, the variables of
// both are set.
var launchers = []launcher{
	{"rma", func(e env) bool { return e(wireup.EnvRank) != "" }, nil},
	{"openmpi", func(e env) bool { return e("OMPI_COMM_WORLD_RANK") != "" }, openMPI},
	{"mpich", func(e env) bool { return e("PMI_FD") != "" || e("PMI_PORT") != "" }, pmi},
	{"slurm", func(e env) bool { return e("SLURM_PROCID") != "" && e("SLURM_STEP_ID") != "" }, slurm},
	{"kubernetes", func(e env) bool {
		return e("JOB_COMPLETION_INDEX") != "" && (e(wireup.EnvSize) != "" || e(EnvService) != "")
	}, kubernetes},
}

// find returns the launcher of this process, or nil.
func find(e env) *launcher {
	forced := e(EnvLauncher)
	for i := range launchers {
		l := &launchers[i]
		if forced == "" || forced == "auto" {
			if l.here(e) {
				return l
			}
		} else if forced == l.name {
			return l
		}
	}
	return nil
}

func from(e env) (Found, error) {
	l := find(e)
	if l == nil {
		switch forced := e(EnvLauncher); {
		case forced == "none":
			return alone(e)
		case forced != "" && forced != "auto":
			return Found{}, fmt.Errorf("jobenv: %w: %s=%q: want auto, none, rma, openmpi, mpich, slurm or kubernetes",
				wireup.ErrEnvironment, EnvLauncher, forced)
		}
		c, err := wireup.From(e) // an incomplete description is an error
		return Found{Config: c, Launcher: "none"}, err
	}
	if l.read == nil {
		c, err := wireup.From(e)
		f := Found{Config: c, Launcher: l.name}
		if err == nil && c.Rank == 0 && c.Root != "" && e(EnvServe) == "1" {
			f.Prepare = ListenAt(c.Root)
		}
		return f, err
	}
	p, err := l.read(e)
	if err == nil {
		err = p.complete(e)
	}
	if err != nil {
		return Found{}, fmt.Errorf("jobenv: under %s: %w", l.name, err)
	}
	p.Launcher = l.name
	return p.Found, nil
}

// alone returns the job of a process that ignores its launcher: rank 0 of 1.
func alone(e env) (Found, error) {
	c, err := wireup.From(func(name string) string {
		if name == wireup.EnvTimeout {
			return e(name)
		}
		return ""
	})
	return Found{Config: c, Launcher: "none"}, err
}

// number parses a required variable.
func (e env) number(name string, least, most int) (int, error) {
	n, err := strconv.Atoi(e(name))
	if err != nil || n < least || n > most {
		return 0, fmt.Errorf("%w: %s=%q: want %d … %d", wireup.ErrEnvironment, name, e(name), least, most)
	}
	return n, nil
}

// numbers reads the rank, the size and the local rank, each from the first of its variables
// that is set; the local rank may be missing.
func (e env) numbers(rank, size, local string) (c wireup.Config, err error) {
	var errs [3]error
	c.Size, errs[0] = e.number(size, 1, wireup.MaxRanks)
	c.Rank, errs[1] = e.number(rank, 0, max(c.Size, 1)-1)
	if e(local) != "" {
		c.LocalRank, errs[2] = e.number(local, 0, wireup.MaxRanks-1)
	}
	return c, errors.Join(errs[:]...)
}

// is reports whether the variable, which may be missing, has the value n.
func (e env) is(name string, n int) bool {
	return strings.TrimSpace(e(name)) == strconv.Itoa(n)
}
