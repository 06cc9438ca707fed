package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed33544411/rma/internal/bench"
	"github.com/seed33544411/rma/internal/bench/choice"
	"github.com/seed33544411/rma/internal/bench/report"
	"github.com/seed33544411/rma/internal/bench/session"
	"github.com/seed33544411/rma/internal/links"
	"github.com/seed33544411/rma/internal/settings"
)

// opFlag is --op of choice and explain.
func (f *choiceFlags) opFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.op, "op", choice.OpMessage, strings.Join(choice.Ops, ", ")+": batches of messages, or puts or gets of several pieces")
}

// tableFlag is --table.
func (f *choiceFlags) tableFlag(cmd *cobra.Command, what string) {
	cmd.Flags().StringVar(&f.table, "table", "", what+", such as 1x4K=eager,4K=gather,*=scatter (see RMA_MODE_TABLE in docs/configuration.md)")
}

// choiceFlags are the flags of choice and explain.
type choiceFlags struct {
	outFlags
	partnerFlags
	fabric, op              string
	grid, batch, coll, size string
	rails                   string
	ranks, hosts            int
	between                 string
	latency                 time.Duration
	seed                    uint64
	rounds, recalibrate     int
	time, budget            time.Duration
	sampling, calibration   time.Duration
	bare, pin               bool
	measure                 bool
	table                   string
	html                    string
	add                     []string
	mixing                  bool
	seeds                   int
}

func (f *choiceFlags) common(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.fabric, "fabric", "auto", "shm, tcp, verbs, or auto: the first that works between the ranks")
	fl.IntVar(&f.rounds, "rounds", choice.DefaultRounds, "number of measurements of every series, in alternation")
	fl.DurationVar(&f.time, "time", choice.DefaultTime, "time per batch")
	fl.DurationVar(&f.sampling, "sampling", choice.DefaultSampling, "time for sampling the link")
	fl.DurationVar(&f.calibration, "calibration", choice.DefaultCalibration, "time for fitting the model to whole batches")
	fl.BoolVar(&f.bare, "no-calibration", false, "omit the terms that are fitted to whole batches")
	fl.BoolVar(&f.pin, "pin", true, "pin each rank to its own processor")
	f.partnerFlags.flags(fl, "measure")
	f.fileFlags(fl, "table or json")
}

func choiceCommand(s streams) *cobra.Command {
	f := &choiceFlags{}
	cmd := &cobra.Command{
		Use: "choice", Short: "Compare the automatic choice with every forced mode", Args: noArgs,
		Long: `Send batches between two ranks, each batch in every mode (eager, gather, scatter)
and as the cost model chooses, in alternation, and compare the times. A time is half a
round trip of the whole batch; receives are posted and memory is registered before.

  regret   time of the automatic choice over that of the best forced mode, less 1, and
           its interval of 95 %, by a bootstrap of the rounds
  choosing time of the automatic choice over that of the same plan when it is forced,
           less 1: the part of the regret that the choice itself costs
  noise    the difference between two series of the best mode
  error    predicted over measured time, less 1, for eager/gather/scatter
  gain     with --table: time by that table of modes over that of the automatic choice,
           less 1; over verbs: time of two-sided messages (send/recv, the reference, which
           is never chosen) over that of the automatic choice, less 1, and before "regret"
           the error of their predicted time

Grids: default (batches of 1 to 128 messages of 8 bytes to 1 MiB and of mixed
sizes), small, or a file such as {"n":[1,8],"mixes":["64","4K","bimodal"],
"bytes":1048576}; a mix is a size, bimodal, heavy (long-tailed) or huge (one
message of 1 MiB among messages of 64 bytes); "bytes" bounds the size of a batch.

With --op put or get, measure puts or gets of several pieces, from the call until the
data is placed: as a chain (one request of the link per piece), in groups (requests that
the target's engine executes), and as planned; "each" is one operation per piece. A file
may name layouts: scattered (on both sides), spread (contiguous at the initiator),
collected (contiguous at the target). The memory is registered by the application, because
pieces are copied directly, by neither method, where a link maps memory that the engine
has allocated.`,
		Example: `  rmabench choice --fabric shm
  rmabench choice --op put --fabric tcp
  rmabench choice --fabric tcp --table '1x4K=eager,4K=gather,*=scatter'
  rmabench choice --fabric tcp --format json --out choice.jsonl --html choice.html
  rmabench choice --fabric verbs --grid small --budget 60s
  rmarun -n 2 rmabench choice --grid small`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			req, err := f.request(cmd.Flags().Changed, func(r *choice.Request) (err error) {
				r.Grid, err = choice.ParseGrid(f.grid, r.Pieces())
				if r.Pieces() && f.html != "" {
					return errors.New("--html shows messages: not with --op put or get")
				}
				return err
			})
			if err != nil {
				return usage(err)
			}
			if req.Pieces() {
				return f.take(cmd.Context(), s, req, f.comparePieces)
			}
			return f.take(cmd.Context(), s, req, f.compare)
		},
	}
	f.common(cmd)
	f.opFlag(cmd)
	f.tableFlag(cmd, "compare with this table of modes as well, by default that of the settings")
	fl := cmd.Flags()
	f.quietFlag(fl)
	fl.StringVar(&f.grid, "grid", "default", "default, small, or a file")
	fl.Uint64Var(&f.seed, "seed", 1, "seed of the random sizes")
	fl.DurationVar(&f.budget, "budget", 0, "start no more batches after this time (default: no limit)")
	fl.IntVar(&f.recalibrate, "recalibrate", 0, "fit the model again after this number of batches, for a machine whose speed changes (default: once)")
	fl.StringVar(&f.html, "html", "", "also write a page with heat maps to this file")
	fl.StringArrayVar(&f.add, "add", nil, "also show the results in this file of JSON lines on the page, those of each run apart (may be repeated)")
	return cmd
}

func explainCommand(s streams) *cobra.Command {
	f := &choiceFlags{}
	cmd := &cobra.Command{
		Use: "explain", Short: "Explain the predicted cost of a batch, term by term", Args: noArgs,
		Long: `Sample the link, and show what the cost model predicts for a batch: every mode's
time term by term, the plan, and the reason for it. With --measure, also measure the
batch in every mode and as planned. With --coll, show the time of a collective
operation that is predicted for every algorithm, the fastest first; with --hosts, of
ranks on several hosts. With --rails, show
how a put or get is divided over connections of given latencies and rates, which
Peer.Stats shows; nothing is measured.`,
		Example: `  rmabench explain --batch 64x128,2x1M
  rmabench explain --op get --batch 64x64 --measure
  rmabench explain --fabric tcp --batch 16x4K --measure
  rmabench explain --batch 8x64,2x64K --table 'tcp:4K=gather;*=scatter'
  rmabench explain --coll allreduce --size 1M --ranks 8
  rmabench explain --fabric shm --coll barrier --ranks 8 --hosts 2 --latency 50us
  rmabench explain --rails 20us:4,15us:28 --size 1M`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.ofColl(cmd.Flags().Changed); err != nil {
				return usage(err)
			}
			if f.rails != "" {
				return f.explainRails(s)
			}
			req, err := f.request(cmd.Flags().Changed, func(r *choice.Request) (err error) {
				if r.Measure = f.measure; f.coll != "" {
					if f.measure || f.batch != "" || f.table != "" {
						return errors.New("--coll excludes --batch, --measure and --table")
					}
					r.Coll, r.Ranks, r.Hosts, r.Latency = f.coll, f.ranks, f.hosts, f.latency
					if r.Between, err = links.Canonical(f.between); err != nil || r.Between == "shm" || r.Between == "" {
						return fmt.Errorf("--between %q: want tcp or verbs", f.between)
					}
					r.Size, err = f.oneSize()
					return err
				}
				r.Batch, err = choice.ParseBatch(f.batch)
				return err
			})
			if err != nil {
				return usage(err)
			}
			return f.take(cmd.Context(), s, req, f.explain)
		},
	}
	f.common(cmd)
	f.opFlag(cmd)
	f.tableFlag(cmd, "plan by this table of modes, by default that of the settings, and name the rows that decide")
	fl := cmd.Flags()
	fl.StringVar(&f.batch, "batch", "", "messages or pieces, such as 64x128,2x1M: 64 of 128 bytes, then 2 of 1 MiB")
	fl.StringVar(&f.coll, "coll", "", "a collective operation instead of a batch, such as allreduce, bcast or alltoall")
	fl.StringVar(&f.size, "size", "8", "bytes of the operation of --coll, the smaller of the two buffers of a rank, or of --rails")
	fl.StringVar(&f.rails, "rails", "", "rails instead of a batch, LATENCY:MB/S each, rail 0 first, such as 20us:4,15us:28")
	fl.IntVar(&f.ranks, "ranks", 8, "ranks of the operation of --coll, of which each has a processor")
	fl.IntVar(&f.hosts, "hosts", 1, "hosts of these ranks, which are divided evenly in their order: those of a host are connected by the link that is sampled")
	fl.StringVar(&f.between, "between", "tcp", "link between these hosts, tcp or verbs, with default parameters")
	fl.DurationVar(&f.latency, "latency", 0, "latency of that link, one way, instead of the default's")
	fl.BoolVar(&f.measure, "measure", false, "also measure the batch in every mode and as planned")
	return cmd
}

// ofColl refuses flags of --coll without it, and a latency that is none.
func (f *choiceFlags) ofColl(changed func(string) bool) error {
	for _, name := range []string{"ranks", "hosts", "between", "latency"} {
		if f.coll == "" && changed(name) {
			return fmt.Errorf("--%s requires --coll", name)
		}
	}
	switch {
	case f.coll == "" && f.rails == "" && changed("size"):
		return errors.New("--size requires --coll or --rails")
	case f.coll != "" && f.op != choice.OpMessage:
		return errors.New("--op: not with --coll")
	case f.hosts < 1:
		return fmt.Errorf("--hosts %d: want 1 or more", f.hosts)
	case f.latency < 0:
		return fmt.Errorf("--latency %v: want a positive time", f.latency)
	}
	return nil
}

// request builds the request from the common flags, and by own from those of one command. Its
// errors are usage errors.
func (f *choiceFlags) request(changed func(string) bool, own func(*choice.Request) error) (choice.Request, error) {
	req := choice.Request{Fabric: f.fabric, Op: f.op, Seed: f.seed, Rounds: f.rounds, Time: f.time, Budget: f.budget, Sampling: f.sampling, Calibration: f.calibration, Recalibrate: f.recalibrate, Bare: f.bare, Pin: f.pin, Table: f.table}
	if err := checkFabricAndFormat(f.fabric, &f.outFlags, rowFormats); err != nil {
		return req, err
	}
	// Zero stands for the default in a Request; on the command line it is an error.
	for name, zero := range map[string]bool{"rounds": f.rounds == 0, "time": f.time == 0, "budget": f.budget == 0, "sampling": f.sampling <= 0, "calibration": f.calibration <= 0} {
		if zero && changed(name) {
			return req, fmt.Errorf("--%s: want a positive value", name)
		}
	}
	if err := own(&req); err != nil {
		return req, err
	}
	if len(f.add) > 0 && f.html == "" {
		return req, errors.New("--add shows results on the page of --html")
	}
	if !changed("table") && req.Coll == "" && !req.Ablate && !req.Mixing && !req.Pieces() {
		v, err := settings.Environment()
		if err == nil {
			req.Table, err = links.TableOf(v)
		}
		if req.Ambient = true; err != nil {
			return req, err
		}
	}
	return req, req.Check()
}

// play executes req between two hosts, in a job, or on this host, as flags and environment say.
func (f *choiceFlags) play(ctx context.Context, s streams, req choice.Request, emit choice.Emit) (err error) {
	if f.connect != "" {
		var secret []byte
		if secret, err = f.token.read(s.err); err == nil {
			err = session.ChoiceConnect(ctx, f.connect, secret, req, emit)
		}
		return err
	}
	if yes, _ := f.inJob(); yes {
		return shown(session.ChoiceInJob(ctx, req, emit))
	}
	return session.ChoiceLocal(ctx, req, s.err, emit)
}

// take executes req by show, which reads and writes files, or without it on a rank that has no
// results.
func (f *choiceFlags) take(ctx context.Context, s streams, req choice.Request, show func(context.Context, streams, choice.Request) error) error {
	if _, silent := f.inJob(); silent {
		return f.play(ctx, s, req, choice.Emit{})
	}
	return show(ctx, s, req)
}

// gatherChoice executes req, and returns its results.
func gatherChoice[R any](ctx context.Context, f *choiceFlags, s streams, req choice.Request, bar io.Writer, total int,
	text func(*R) string, emit func(func(R) error) choice.Emit,
) ([]R, error) {
	return gather(bar, total, text, func(take func(R) error) error { return f.play(ctx, s, req, emit(take)) })
}

// compareCells measures and writes results of any type. emit makes a choice.Emit of a function
// that takes results; sum computes the summary that is written last.
func compareCells[R, S any](ctx context.Context, f *choiceFlags, s streams, req choice.Request, writer func(io.Writer, string) choice.Writer[R, S],
	text func(*R) string, emit func(func(R) error) choice.Emit, sum func(rs []R, cut bool) S,
) (rs []R, err error) {
	out, commit := f.output(s)
	w := writer(out, f.format)
	total := len(req.Cells())
	rs, err = gatherChoice(ctx, f, s, req, f.barBeside(s), total, text, func(take func(R) error) choice.Emit {
		return emit(func(r R) error { return errors.Join(take(r), w.Write(r)) })
	})
	if err != nil {
		return nil, err
	}
	return rs, errors.Join(w.Close(sum(rs, len(rs) < total)), commit())
}

// comparePieces measures puts or gets of pieces and writes the results.
func (f *choiceFlags) comparePieces(ctx context.Context, s streams, req choice.Request) error {
	_, err := compareCells(ctx, f, s, req, choice.NewPiecesWriter,
		func(r *choice.PiecesResult) string {
			return fmt.Sprintf("%s %d × %s %s", r.Fabric, r.N, r.Size, r.Layout)
		},
		func(take func(choice.PiecesResult) error) choice.Emit { return choice.Emit{Pieces: take} },
		func(rs []choice.PiecesResult, cut bool) choice.PiecesSummary {
			sum := choice.SummarizePieces(rs)
			sum.Seed, sum.Cut = req.Seed, cut
			return sum
		})
	return err
}

// compare measures messages and writes the results.
func (f *choiceFlags) compare(ctx context.Context, s streams, req choice.Request) error {
	var ss []choice.Summary
	added, err := addLines(f.add, func(r io.Reader) ([]choice.Result, error) {
		more, sums, err := choice.Read(r)
		ss = append(ss, sums...)
		return more, err
	})
	if err != nil {
		return err
	}
	var sum choice.Summary
	rs, err := compareCells(ctx, f, s, req, choice.NewWriter,
		func(r *choice.Result) string { return fmt.Sprintf("%s %d × %s", r.Fabric, r.N, r.Mix) },
		func(take func(choice.Result) error) choice.Emit { return choice.Emit{Cell: take} },
		func(rs []choice.Result, cut bool) choice.Summary {
			sum = choice.Summarize(rs)
			sum.Seed, sum.Cut = req.Seed, cut
			return sum
		})
	if err != nil || f.html == "" || sum.Cells == 0 {
		return err
	}
	rs, ss = append(rs, added...), append([]choice.Summary{sum}, ss...)
	return writePage(f.html, func(w io.Writer) error { return report.WriteChoice(w, rs, ss, time.Now()) })
}

// explain explains a batch and writes the explanation.
func (f *choiceFlags) explain(ctx context.Context, s streams, req choice.Request) error {
	var x *choice.Explanation
	emit := choice.Emit{Explain: func(y choice.Explanation) error { x = &y; return nil }}
	if err := f.play(ctx, s, req, emit); err != nil {
		return err
	}
	return f.writeOne(s, x, x.WriteText)
}

// oneSize reads the flag --size.
func (f *choiceFlags) oneSize() (int, error) {
	ns, err := bench.ParseSizes(f.size)
	if err != nil || len(ns) != 1 {
		return 0, fmt.Errorf("--size %q: want one size", f.size)
	}
	return ns[0], nil
}

// explainRails explains how an operation is divided over rails.
func (f *choiceFlags) explainRails(s streams) error {
	if f.measure || f.batch != "" || f.table != "" || f.coll != "" {
		return usage(errors.New("--rails excludes --batch, --coll, --measure and --table"))
	}
	rails, err := bench.ParseRails(f.rails)
	if err != nil {
		return usage(fmt.Errorf("--rails: %w", err))
	}
	n, err := f.oneSize()
	if err != nil {
		return usage(err)
	}
	if err := checkFabricAndFormat(f.fabric, &f.outFlags, rowFormats); err != nil {
		return usage(err)
	}
	c := bench.CutOver(rails, n)
	return f.writeOne(s, c, c.WriteText)
}

func ablateCommand(s streams) *cobra.Command {
	f := &choiceFlags{}
	cmd := &cobra.Command{
		Use: "ablate", Short: "Measure the effect of single design choices", Args: noArgs,
		Long: `Measure batches over channels that differ in one property only, in alternation:

  arrival         a lap flag in each block, or a cursor word behind the data
  credit          consumed blocks, of 64, after which credit is returned
  gather source,  registered messages sent in place above a size (default),
  eager source    always sent in place, or always copied
  unregistered    memory that the application has not registered: copied in growing chunks
                  (superpipeline), in equal ones, or as a whole; registered for each
                  message, or kept registered, which is the default where a link registers
  posting         one post for a chain of requests, or one for each

With --mixing, instead: measure the batches of a grid as planned, in single modes and by
fixed thresholds (the eager limits of Open MPI, or --table), with ten seeds for random sizes,
and show the gain of the planner over each: over the one mode that is best for all batches
together, over the best mode of each batch whose plan uses several, and over the thresholds.

Ratios are relative to the first variant, which is the default; noise is the ratio of
two series of the first variant. The lap flag is not available on links that do not
promise that the last byte of a write becomes visible last.`,
		Example: "  rmabench ablate --fabric shm\n  rmabench ablate --fabric tcp --format json\n  rmabench ablate --fabric shm --mixing --seeds 10",
		RunE: func(cmd *cobra.Command, _ []string) error {
			req, err := f.request(cmd.Flags().Changed, func(r *choice.Request) (err error) {
				for _, name := range []string{"grid", "seeds", "seed", "table"} {
					if !f.mixing && cmd.Flags().Changed(name) {
						return fmt.Errorf("--%s requires --mixing", name)
					}
				}
				if r.Ablate = !f.mixing; f.mixing {
					r.Mixing, r.Seeds = true, f.seeds
					r.Grid, err = choice.ParseGrid(f.grid, false)
				}
				return err
			})
			if err != nil {
				return usage(err)
			}
			if f.mixing {
				return f.take(cmd.Context(), s, req, f.compareMixing)
			}
			return f.take(cmd.Context(), s, req, f.ablate)
		},
	}
	f.common(cmd)
	fl := cmd.Flags()
	f.quietFlag(fl)
	fl.BoolVar(&f.mixing, "mixing", false, "measure the gain of plans with several modes instead")
	fl.StringVar(&f.grid, "grid", "default", "with --mixing: default, small, or a file (see rmabench choice --help)")
	f.tableFlag(cmd, "with --mixing: the fixed thresholds")
	fl.IntVar(&f.seeds, "seeds", 10, "with --mixing: number of draws of the random sizes")
	fl.Uint64Var(&f.seed, "seed", 1, "with --mixing: first seed")
	return cmd
}

// compareMixing compares plans of several modes with simpler rules and writes the result.
func (f *choiceFlags) compareMixing(ctx context.Context, s streams, req choice.Request) error {
	rs, err := gatherChoice(ctx, f, s, req, f.bar(s), len(req.Cells()), func(r *choice.Result) string { return fmt.Sprintf("%s %d × %s", r.Fabric, r.N, r.Mix) },
		func(emit func(choice.Result) error) choice.Emit { return choice.Emit{Cell: emit} })
	if err != nil {
		return err
	}
	return writeRows(&f.outFlags, s, choice.SummarizeMixing(rs), choice.WriteMixing)
}

// ablate measures design choices and writes the results.
func (f *choiceFlags) ablate(ctx context.Context, s streams, req choice.Request) error {
	as, err := gatherChoice(ctx, f, s, req, f.bar(s), choice.AblationRows(), func(a *choice.Ablation) string { return fmt.Sprintf("%s %s %s", a.Fabric, a.Study, a.Batch) },
		func(emit func(choice.Ablation) error) choice.Emit { return choice.Emit{Ablation: emit} })
	if err != nil {
		return err
	}
	return writeRows(&f.outFlags, s, as, choice.WriteAblations)
}
