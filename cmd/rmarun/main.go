// Command rmarun starts the ranks of a job as processes of this host, lets
// them find each other, and sees to it that they end together.
//
//	rmarun -n 4 ./program args...
//
// main.go has the command, options.go its flags; the work is done by internal/launch. Tests with real
// processes are in main_test.go.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/seed33544411/rma/internal/launch"
)

func main() {
	code, err := run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	if err != nil {
		fmt.Fprintf(os.Stderr, "rmarun: %v\n", err)
	}
	os.Exit(code)
}

const long = `Start N ranks of a program on this host as one job.

rmarun sets the variables that rma.Open needs in the environment of every rank:
RMA_RANK, RMA_SIZE, RMA_ROOT (the wire-up server in rmarun), RMA_TOKEN, RMA_JOB,
RMA_LOCAL_RANK and RMA_LOCAL_SIZE. Variables such as RMA_FABRIC=tcp are passed on.

Signals (INT, TERM, HUP, QUIT, USR1, USR2) are forwarded to all ranks; a second INT
or TERM kills them. Standard input goes to rank 0. When a rank fails, rmarun ends the
others: SIGTERM, then SIGKILL after the grace time. With --keep-going the others
continue, and their operations with the failed rank fail with rma.ErrPeerGone. If
rmarun itself is killed, the ranks are killed as well.

With --hang-timeout, a rank that makes no progress for that time has also failed: it
is stopped (SIGSTOP), or other ranks report that it hangs (rma.ErrPeerHung). The ranks
receive the time as RMA_HANG_TIMEOUT. rmarun prints the rank, its host and the state
of its processes. With --keep-going, rmarun ends such a rank only when all remaining
ranks are stopped.

With --bind, each rank runs on a core of its own, with all its hardware threads, among
the processors that rmarun itself may use (mpirun, srun, taskset and control groups may
have restricted them):
  none      anywhere; the default
  scatter   equal shares of the NUMA nodes, as far apart as possible within a node
  compact   one core after the other
Ranks share cores if there are more ranks than cores. Several jobs on a host share cores
as well: each job begins with the first. Unless GOMAXPROCS is set, bound ranks have it as
the number of hardware threads of their core, but at least 2, so that the engine can run
beside one goroutine that computes, and ranks that are not bound and more than the processors
have it as 1. What the host does not report about its processors is
assumed; --report-bindings prints such assumptions.

Exit code:
  0        all ranks exited with 0
  1        rmarun failed, a rank aborted the job, or output that passes through rmarun
           (--tag) could not be written
  2        bad flags
  124      --timeout has passed
  125      a rank made no progress for --hang-timeout
  126      the program cannot be started
  127      the program cannot be found
  other    the exit code of the first rank that failed, also with --keep-going;
           128 + signal if it was killed`

const examples = `  rmarun -n 2 ./hello
  rmarun -n 2 go run ./examples/hello
  rmarun -n 4 --tag ./solver -steps 100
  RMA_FABRIC=tcp rmarun -n 2 rmabench lat --op put
  rmarun -n 4 --bind scatter --report-bindings ./solver
  rmarun -n 4 --keep-going ./server; echo $?      # 137 if one was killed
  rmarun -n 8 --timeout 5m --wireup tcp -- ./program --its-own --flags`

// errUsage marks errors of the command line.
type errUsage struct{ error }

func (e errUsage) Unwrap() error { return e.error }

// run is main without the process: it returns the exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) (code int, err error) {
	o := options{Spec: launch.Spec{Stdin: stdin, Stdout: stdout, Stderr: stderr}}
	cmd := &cobra.Command{
		Use:           "rmarun -n N [flags] program [args...]",
		Short:         "Start N ranks of a program on this host as one job",
		Long:          long,
		Example:       examples,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errUsage{errors.New("no program given (see rmarun --help)")}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return err
			}
			code, err = o.launch(cmd.Context(), args)
			return err
		},
	}
	f := cmd.Flags()
	f.SetInterspersed(false) // what follows the program is the program's
	o.flags(f)
	if err := errors.Join(cmd.MarkFlagRequired("np"), f.MarkHidden("rendezvous")); err != nil {
		return 1, err
	}
	cmd.SetArgs(mpirunFlags(f, args))
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return errUsage{seeHelp(err)} })
	cmd.CompletionOptions.DisableDefaultCmd = true
	err = cmd.ExecuteContext(ctx)
	var usage errUsage
	switch {
	case err == nil:
		return code, nil
	case errors.As(err, &usage):
		return launch.ExitUsage, err
	case code == 0: // refused by cobra itself, as a required flag that is missing
		return launch.ExitUsage, seeHelp(err)
	}
	return code, err
}

func seeHelp(err error) error { return fmt.Errorf("%w (see rmarun --help)", err) }

// mpirunFlags turns -np, which looks like two flags of one letter, into what it is
// meant to be, among the flags before the program.
func mpirunFlags(f *pflag.FlagSet, args []string) []string {
	args = slices.Clone(args)
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if arg == "--" || !strings.HasPrefix(arg, "-") {
			break
		}
		if name, _, _ := strings.Cut(arg, "="); name == "-np" {
			arg = "-" + arg
			args[i] = arg
		}
		name, _, has := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		flag := f.Lookup(name)
		if !strings.HasPrefix(arg, "--") && len(name) == 1 {
			flag = f.ShorthandLookup(name)
		}
		if flag != nil && flag.NoOptDefVal == "" && !has {
			i++ // its value
		}
	}
	return args
}
