// Command rmabench measures one-sided operations between two ranks: latency, bandwidth and
// message rate over shared memory, TCP and RDMA verbs. It also shows a machine's equipment
// (info) and obstacles to measurements (doctor), and makes a report with plots.
//
//	rmabench lat --fabric shm --sizes 8:4M
//
// The files bind flags; the work is done by internal/bench and the packages
// below it:
//
//	main.go     the command tree, exit codes
//	measure.go  lat, bw, rate
//	remote.go   serve
//	host.go     info, doctor; verbs.go their part about RDMA devices;
//	            settings.go info --settings
//	report.go   report; reportmodel.go its part about the cost model,
//	            reportelsewhere.go verbs in a virtual machine
//	plogp.go    plogp; startup.go plogp --startup
//	choice.go   choice, explain, ablate
//	switch.go   switch
//	rendezvous.go  rendezvous
//	overlap.go  overlap, reactivity, threads, concurrent, load
//	compare.go  compare
//	sockets.go  sockets
//	collective.go  coll; nbc.go  nbc; rails.go  rails
//	output.go   --format, --out, progress
//
// Tests with real processes are in main_test.go.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/seed33544411/rma/internal/bench"
	"github.com/seed33544411/rma/internal/bench/compare"
	"github.com/seed33544411/rma/internal/bench/host"
	"github.com/seed33544411/rma/internal/bench/session"
	"github.com/seed33544411/rma/internal/jobenv"
)

func main() {
	host.ServeCMA()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	if len(os.Args) < 2 || session.Children[os.Args[1]] == nil { // which get two: forwarded, and to end
		context.AfterFunc(ctx, stop) // a second interrupt ends what does not look at ctx
	}
	code := run(ctx, os.Args[1:], streams{os.Stdin, os.Stdout, os.Stderr})
	stop()
	os.Exit(code)
}

// streams are the standard streams; tests replace them.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2

	// exitMissing: a peer named for compare or overlap is not installed.
	exitMissing = 3

	exitInterrupted = 130 // 128 + SIGINT, as of shells
)

// usageError marks errors of the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usage(err error) error {
	if err == nil {
		return nil
	}
	return usageError{err}
}

// checkFabricAndFormat returns an error of the command line if one of the two flags has a value
// that does not exist.
func checkFabricAndFormat(fabric string, o *outFlags, formats []string) error {
	if !slices.Contains(bench.Fabrics, fabric) {
		return fmt.Errorf("--fabric %q: want %s", fabric, strings.Join(bench.Fabrics, ", "))
	}
	return o.check(formats)
}

// errSilent is a failure that has already been reported.
var errSilent = errors.New("failed")

const long = `Measure one-sided operations between two ranks.

  lat    latency: half round trip for put, send and eager, full operation for
         get, fadd and cas (the definitions of perftest)
  bw     bandwidth with a window of requests outstanding, 1 MB = 1e6 bytes
  rate   messages per second, of 8 bytes unless --sizes is given

rmabench starts the two ranks on this host. Under rmarun it uses ranks 0 and 1
of the job. Between two hosts run "rmabench serve ADDR" on one and add
"--connect ADDR" on the other, with the same secret in RMA_TOKEN.

Exit code: 0 success, 1 failure, 2 wrong flags or sizes, 130 interrupted. A second
interrupt ends it at once.`

const examples = `  rmabench lat --fabric shm --sizes 8:4M
  rmabench bw --op get --fabric tcp --sizes 4K,64K,1M --time 2s
  rmabench rate --op put --format json --out rate.jsonl
  rmabench lat --count 10 --format go > new.txt && benchstat old.txt new.txt
  rmarun -n 2 rmabench lat --op cas
  export RMA_TOKEN=$(openssl rand -hex 16)  # the same value on hosts a and b
  rmabench serve :7471                      # on host a
  rmabench lat --fabric tcp --connect a:7471    # on host b
  rmabench report --out out/                # everything, with plots
  rmabench plogp --fabric shm               # parameters of the cost model
  rmabench choice --fabric shm              # the model's choice against forced modes
  rmabench explain --batch 64x128,2x1M      # the predicted cost of a batch
  rmabench ablate --fabric tcp              # the effect of single design choices
  rmabench switch --fabric shm              # steps in bandwidth where the choice changes
  rmabench rendezvous --fabric tcp          # large messages against raw reads
  rmabench coll --ranks 4                   # collective operations
  rmabench overlap --fabric shm             # transfers while the ranks compute
  rmabench reactivity --fabric tcp          # latency of a rank that computes
  rmabench threads                          # one goroutine while others wait or send
  rmabench load --fabric shm                # operations beside busy processes
  rmabench sockets                          # net/http and streams over rmanet and sockets
  rmabench rails --links A,B --peer-links C,D  # puts and gets over several links
  rmabench compare --fabric tcp --peers ucx # the same tests with another library
  rmabench info; rmabench doctor`

// run executes the command and returns its exit code.
func run(ctx context.Context, args []string, s streams) int {
	root := &cobra.Command{
		Use: "rmabench", Short: "Measure one-sided operations between two ranks", Long: long, Example: examples,
		SilenceErrors: true, SilenceUsage: true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usage(fmt.Errorf("unknown command %q (see rmabench --help)", args[0]))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.AddCommand(measureCommands(s)...)
	root.AddCommand(overlapCommands(s)...)
	root.AddCommand(serveCommand(s), infoCommand(s), doctorCommand(s), reportCommand(s), plogpCommand(s), choiceCommand(s), explainCommand(s), ablateCommand(s), rendezvousCommand(s), compareCommand(s), switchCommand(s), collCommand(s), nbcCommand(s), socketsCommand(s), railsCommand(s))
	for arg, child := range session.Children {
		root.AddCommand(&cobra.Command{
			Use: arg, Hidden: true, Args: noArgs,
			RunE: func(cmd *cobra.Command, _ []string) error { return shown(child(cmd.Context(), s.in, s.out)) },
		})
	}
	root.InitDefaultHelpCmd()
	if help, _, err := root.Find([]string{"help"}); err == nil {
		help.Args = func(_ *cobra.Command, args []string) error {
			if _, rest, _ := root.Find(args); len(rest) > 0 {
				return usage(fmt.Errorf("unknown command %q (see rmabench --help)", strings.Join(args, " ")))
			}
			return nil
		}
	}
	root.SetArgs(args)
	root.SetOut(s.out)
	root.SetErr(s.err)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usage(fmt.Errorf("%w (see %s --help)", err, cmd.CommandPath()))
	})
	root.CompletionOptions.HiddenDefaultCmd = true
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error { return writable(cmd.Flags()) }
	err := root.ExecuteContext(ctx)
	var u usageError
	silent := errors.Is(err, errSilent) || errors.Is(err, session.ErrReported)
	switch {
	case err == nil:
		return exitOK
	case errors.Is(ctx.Err(), context.Canceled): // also if another rank of the job ended of it first
		if !silent {
			fmt.Fprintln(s.err, "rmabench: interrupted")
		}
		return exitInterrupted
	case silent:
		return exitFailed
	}
	fmt.Fprintf(s.err, "rmabench: %v\n", err)
	switch {
	case errors.As(err, &u):
		return exitUsage
	case errors.Is(err, compare.ErrMissing):
		return exitMissing
	}
	return exitFailed
}

// noArgs refuses arguments as a usage error.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage(fmt.Errorf("unexpected argument %q (see %s --help)", args[0], cmd.CommandPath()))
	}
	return nil
}

// startsRanks is noArgs for commands that start their ranks themselves.
func startsRanks(cmd *cobra.Command, args []string) error {
	if err := noArgs(cmd, args); err != nil {
		return err
	}
	return usage(outside(cmd.Name()))
}

// outside refuses a job, each of whose ranks would start ranks of its own for what.
func outside(what string) error {
	if !jobenv.InJob() {
		return nil
	}
	return fmt.Errorf("%s starts its ranks itself, on this host: run it outside of a job, or once with %s=none", what, jobenv.EnvLauncher)
}

// shown makes the error of a rank without a report an errSilent.
func shown(shows bool, err error) error {
	if err != nil && !shows {
		return errSilent
	}
	return err
}
