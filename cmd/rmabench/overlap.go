package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/seed33544411/rma/internal/bench"
	"github.com/seed33544411/rma/internal/bench/compare"
	"github.com/seed33544411/rma/internal/bench/overlap"
	"github.com/seed33544411/rma/internal/bench/session"
	"github.com/seed33544411/rma/internal/jobenv"
)

// overlapFlags are the flags of overlap, reactivity, threads, concurrent and load.
type overlapFlags struct {
	outFlags
	req   overlap.Request
	sizes string
	peers []string // other libraries, but for load
}

// overlapCommands returns the commands that measure communication during computation.
func overlapCommands(s streams) []*cobra.Command {
	return []*cobra.Command{overlapCommand(s), reactivityCommand(s), threadsCommand(s), concurrentCommand(s), loadCommand(s)}
}

func overlapCommand(s streams) *cobra.Command {
	return (&overlapFlags{req: overlap.Request{What: "overlap"}}).command(s, &cobra.Command{
		Use: "overlap", Short: "Measure how much of a transfer computation hides",
		Long: `Measure an operation alone, a computation alone, and both at once, through package
rma, on two ranks of this host or of the job.

  ratio  time for both / (communication + computation); 1 is no overlap
  bound  the lowest ratio possible, given the copies that the link makes on the
         processors
  imb %  100 (communication + computation - both) / the smaller of the two, as in
         Intel's IMB-NBC

The computation is a fixed amount of arithmetic, a multiple of the time that the
operation takes alone. Times are those of the slower rank, medians over iterations;
the table shows medians over rounds and the spread of the ratio.

--peers measures MPI libraries as well, round by round in turn, by a program that is
compiled with their mpicc and makes the same series (message: MPI_Isend, MPI_Irecv and
MPI_Wait; put and get: MPI_Put, MPI_Get and MPI_Win_flush). mpich-async is MPICH with
MPICH_ASYNC_PROGRESS=1. It needs --fabric shm or tcp.`,
		Example: `  rmabench overlap --fabric shm
  rmabench overlap --fabric tcp --sizes 64K,1M,16M --who both --ratios 1
  rmabench overlap --fabric shm --sizes 1M --peers openmpi,mpich,mpich-async
  rmabench overlap --op put,get --format json --out overlap.jsonl
  rmarun -n 2 rmabench overlap`,
	}, func(f *overlapFlags, fl *pflag.FlagSet) {
		fl.StringSliceVar(&f.req.Ops, "op", []string{"message"}, strings.Join(overlap.OverlapOps, ", ")+" (rank 0 sends, puts, or gets)")
		fl.StringSliceVar(&f.req.Who, "who", overlap.OverlapWho, "ranks that compute: sender (rank 0), receiver (rank 1), both")
		fl.StringVar(&f.sizes, "sizes", "64K,1M", "sizes, a list such as 8,4K,1M or a range by powers of two such as 64K:16M")
		fl.Float64SliceVar(&f.req.Ratios, "ratios", []float64{1, 2, 4}, "lengths of the computation, as multiples of the communication")
	})
}

func reactivityCommand(s streams) *cobra.Command {
	return (&overlapFlags{req: overlap.Request{What: "reactivity"}}).command(s, &cobra.Command{
		Use: "reactivity", Short: "Measure the latency of operations on a rank that computes",
		Long: `Measure the latency of single operations by rank 0 on rank 1, which runs a number of
computing goroutines per processor that never wait: a get and a
fetch-and-add of 8 bytes, a message of 8 bytes and one of 1 MiB that a handler answers
(both directions).

Rank 0 starts each operation when the last has ended, so that rank 1 is hardly ever without one.
With --gap it sleeps before each operation, which shows how long a rank takes that is
asked now and then; the latencies do not contain the sleep. The table also shows by how many percent
the computation is slower than while rank 0 sleeps. What rank 0 itself takes of the processors of rank 1
counts as well: with a processor for each rank (rmarun -n 2 --bind scatter), only serving does.

--peers measures MPI libraries as well, round by round in turn: MPI_Get and
MPI_Fetch_and_op with a flush, and messages that the target's main thread answers, which
waits in MPI_Recv while as many other threads compute as goroutines do here. It needs --fabric shm or tcp, and no
--gap.`,
		Example: `  rmabench reactivity --fabric tcp
  rmabench reactivity --fabric shm --op get,fetch-add --peers openmpi,mpich
  rmabench reactivity --op handler --goroutines 0,1,8 --rounds 9
  rmabench reactivity --fabric tcp --op get --gap 1ms --time 1s`,
	}, func(f *overlapFlags, fl *pflag.FlagSet) {
		fl.StringSliceVar(&f.req.Ops, "op", overlap.ReactivityOps, "operations")
		fl.IntSliceVar(&f.req.Counts, "goroutines", []int{0, 1, 8}, "goroutines that compute, for each processor")
		fl.DurationVar(&f.req.Gap, "gap", 0, "time that rank 0 sleeps before each operation, up to 1s, such as 1ms")
	})
}

func threadsCommand(s streams) *cobra.Command {
	return (&overlapFlags{req: overlap.Request{What: "threads"}}).command(s, &cobra.Command{
		Use: "threads", Short: "Measure one goroutine while others wait or send",
		Long: `Measure two operations by one goroutine of each rank: a put with a wait, and half of a
ping-pong of signals. Meanwhile other goroutines of the same rank wait for signals or
messages that never arrive, or send messages of 8 bytes one after another.

--peers measures MPI libraries as well, round by round in turn (MPI_Put with a flush, a
ping-pong of messages, beside threads in MPI_Recv and MPI_Send; MPI has no signals to
wait for). It needs --fabric shm or tcp.`,
		Example: `  rmabench threads --fabric shm
  rmabench threads --fabric shm --beside messages,sends --goroutines 0,1,8 --peers openmpi,mpich
  rmabench threads --beside sends --goroutines 0,1,16,128`,
	}, func(f *overlapFlags, fl *pflag.FlagSet) {
		fl.StringSliceVar(&f.req.Beside, "beside", overlap.ThreadsBeside, "activity of the other goroutines: signals, messages, sends")
		fl.IntSliceVar(&f.req.Counts, "goroutines", []int{0, 1, 16, 128}, "numbers of other goroutines")
	})
}

func concurrentCommand(s streams) *cobra.Command {
	return (&overlapFlags{req: overlap.Request{What: "concurrent"}}).command(s, &cobra.Command{
		Use: "concurrent", Short: "Measure small operations beside streams",
		Long: `Measure two operations by one goroutine of each rank: a put of 8 bytes with a wait, and
half of a ping-pong of signals. Meanwhile other goroutines of rank 0 each stream
messages, which a handler of rank 1 discards, puts or gets: each waits for one before it
starts the next. The last column is the bandwidth of all streams in the meantime.

--peers measures MPI libraries as well, round by round in turn (MPI_Put with a flush, a
ping-pong of messages, beside threads in MPI_Send, MPI_Put and MPI_Get). It needs
--fabric shm or tcp.`,
		Example: `  rmabench concurrent --fabric tcp
  rmabench concurrent --fabric shm --beside messages --sizes 1M --streams 0,1,4 --peers openmpi,mpich`,
	}, func(f *overlapFlags, fl *pflag.FlagSet) {
		fl.StringSliceVar(&f.req.Beside, "beside", overlap.Streams, "operations of the streams")
		fl.StringVar(&f.sizes, "sizes", "64K,1M", "sizes of the streams' operations, a list such as 8,4K,1M or a range by powers of two such as 64K:16M")
		fl.IntSliceVar(&f.req.Counts, "streams", []int{0, 1, 4}, "numbers of streams")
	})
}

func loadCommand(s streams) *cobra.Command {
	return (&overlapFlags{req: overlap.Request{What: "load"}}).command(s, &cobra.Command{
		Use: "load", Short: "Measure operations beside busy processes",
		Long: `Measure operations between two ranks of this host while threads of another process
compute without a pause: half of a ping-pong of puts of 8 bytes with a signal, a
barrier, and a get of 8 bytes. The ranks are started again for each value of RMA_SPIN,
in turn; "default" leaves it unset.

The mean is what a program gets: the median may be that of the moments in which both
ranks have a processor.`,
		Example: `  rmabench load --fabric shm --busy 0,1,2
  rmabench load --fabric tcp --op get --spin default,-1,48,320 --rounds 9`,
	}, func(f *overlapFlags, fl *pflag.FlagSet) {
		fl.StringSliceVar(&f.req.Ops, "op", overlap.LoadOps, "operations")
		fl.IntSliceVar(&f.req.Counts, "busy", []int{0, 1, runtime.NumCPU()}, "numbers of computing threads")
		fl.StringSliceVar(&f.req.Spins, "spin", []string{overlap.SpinDefault, "-1", "48", "320"}, "values of RMA_SPIN, or "+overlap.SpinDefault)
	})
}

func (f *overlapFlags) command(s streams, cmd *cobra.Command, own func(*overlapFlags, *pflag.FlagSet)) *cobra.Command {
	cmd.Args = noArgs
	if f.req.What == "load" {
		cmd.Args = startsRanks
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := f.check(); err != nil {
			return usage(err)
		}
		return f.run(cmd.Context(), s)
	}
	fl := cmd.Flags()
	own(f, fl)
	if f.req.What != "load" {
		fl.StringSliceVar(&f.peers, "peers", nil, "other libraries to measure in turn: "+strings.Join(compare.MPINames(), ", "))
	}
	fl.StringVar(&f.req.Fabric, "fabric", "auto", "shm, tcp, verbs, or auto: the first that works between the ranks")
	fl.IntVar(&f.req.Rounds, "rounds", 3, "number of repetitions of everything, in turn")
	fl.DurationVar(&f.req.Time, "time", 200*time.Millisecond, "time per series of a point")
	f.flags(fl, "table, or json: one object per line for each point of each round")
	return cmd
}

// check completes the request; its errors are usage errors.
func (f *overlapFlags) check() error {
	if err := checkFabricAndFormat(f.req.Fabric, &f.outFlags, rowFormats); err != nil {
		return err
	}
	if f.sizes != "" {
		var err error
		if f.req.Sizes, err = bench.ParseSizes(f.sizes); err != nil {
			return fmt.Errorf("--sizes: %w", err)
		}
	}
	if len(f.peers) > 0 {
		if err := outside("--peers"); err != nil {
			return err
		}
		if f.req.Gap != 0 {
			return errors.New("--gap: not with --peers, whose programs operate without a pause")
		}
	}
	return f.req.Check()
}

// run measures and writes the results.
func (f *overlapFlags) run(ctx context.Context, s streams) error {
	if showsNothing() {
		return shown(session.OverlapInJob(ctx, f.req, nil))
	}
	var peers *compare.Overlap
	total := f.req.Points()
	if len(f.peers) > 0 {
		var err error
		peers, err = compare.NewOverlap(ctx, f.req.What, f.req.Fabric, f.peers)
		switch {
		case errors.Is(err, compare.ErrPeer), errors.Is(err, compare.ErrFabric):
			return usage(fmt.Errorf("--peers: %w", err))
		case err != nil:
			return err
		}
		defer func() { _ = peers.Close() }() // temporary files
		total += f.req.Rounds * peers.Points(&f.req)
	}
	rs, err := gather(f.bar(s), total, func(r *overlap.Result) string { return r.Fabric + " " + r.What + " " + r.Op },
		func(emit func(overlap.Result) error) error {
			switch {
			case jobenv.InJob():
				_, err := session.OverlapInJob(ctx, f.req, emit)
				return err
			case peers == nil:
				return session.OverlapLocal(ctx, f.req, s.err, emit)
			}
			return f.inTurn(ctx, s, peers, emit)
		})
	if err != nil {
		return err
	}
	return writeRows(&f.outFlags, s, rs, overlap.WriteText)
}

// inTurn measures this library and its peers in each round.
func (f *overlapFlags) inTurn(ctx context.Context, s streams, peers *compare.Overlap, emit func(overlap.Result) error) error {
	one := f.req
	one.Rounds = 1
	for round := range f.req.Rounds {
		err := session.OverlapLocal(ctx, one, s.err, func(r overlap.Result) error {
			r.Round = round
			return emit(r)
		})
		if err == nil {
			err = peers.Round(ctx, &one, round, emit)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
