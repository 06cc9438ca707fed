//go:build linux

package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// parts are all ways of disturbing a job, in the order in which they take turns.
var parts = []*part{
	{"death", "SIGKILL at a random moment", death},
	{"pause", "SIGSTOP, and SIGCONT in time", pause},
	{"hang", "SIGSTOP for good", hang},
	{"close", "regions closed while peers write to them", closing},
	{"wire", "the carrier of a network is lost, for a moment or for good", wire},
	{"hostile", "a rank that lies to the others", hostile},
	{"secrecy", "a relay without the token that records, changes and replays", secrecy},
	{"limits", "few descriptors, no locked memory, system calls that fail", limits},
	{"strangers", "floods of connections to every port", strangers},
}

const usage = `usage: chaos [flags]

Starts jobs of rma and kills, stops, starves and floods them, until the time is up.
Every failure prints the command that repeats its round.

Exit code: 0 all promises held, 1 one was broken, 2 bad flags.

Examples:
  chaos --time 10m                           a new seed
  chaos --seed 7 --parts death,hang --time 2h
  chaos --seed 7 --parts death --round 3     one round again

Flags:
`

func main() {
	if spec, is := os.LookupEnv(workEnv); is {
		if err := runRank(spec); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// campaign is what the flags say.
type campaign struct {
	seed  uint64
	time  time.Duration
	parts []*part
	round int
	json  string
}

func run(args []string, stdout, stderr io.Writer) int {
	c, err := parse(args, stderr)
	if err != nil {
		if err != flag.ErrHelp {
			fmt.Fprintln(stderr, "chaos:", err)
		}
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	rounds := c.run(ctx, stderr)
	table(stdout, c.parts, rounds)
	if c.json != "" {
		if err := save(c.json, rounds); err != nil {
			fmt.Fprintln(stderr, "chaos:", err)
			return 1
		}
	}
	broken := 0
	for _, r := range rounds {
		if len(r.faults) > 0 {
			broken++
		}
	}
	fmt.Fprintf(stdout, "%d passed, %d failed (seed %d)\n", len(rounds)-broken, broken, c.seed)
	if broken > 0 {
		return 1
	}
	return 0
}

func parse(args []string, stderr io.Writer) (*campaign, error) {
	c := &campaign{}
	f := flag.NewFlagSet("chaos", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Usage = func() { fmt.Fprint(stderr, usage); f.PrintDefaults() }
	var names []string
	for _, p := range parts {
		names = append(names, p.name)
	}
	f.Uint64Var(&c.seed, "seed", rand.Uint64()>>32, "of all random choices")
	f.DurationVar(&c.time, "time", 10*time.Minute, "how long to go on")
	f.IntVar(&c.round, "round", -1, "only this round of each part")
	list := f.String("parts", strings.Join(names, ","), "what to do")
	f.StringVar(&c.json, "json", "", "write a line a round to this file")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	for _, name := range strings.Split(*list, ",") {
		i := slices.Index(names, name)
		if i < 0 {
			return nil, fmt.Errorf("no part %q: there are %s", name, strings.Join(names, ", "))
		}
		c.parts = append(c.parts, parts[i])
	}
	return c, nil
}

// run makes rounds, the parts in turn, until the time is up.
func (c *campaign) run(ctx context.Context, stderr io.Writer) (rounds []*round) {
	start := time.Now()
	for no := max(0, c.round); ctx.Err() == nil; no++ {
		for _, p := range c.parts {
			if time.Since(start) > c.time && no > 0 && c.round < 0 || ctx.Err() != nil {
				return rounds
			}
			r := newRound(p, c.seed, no)
			p.run(ctx, r)
			rounds = append(rounds, r)
			for _, f := range r.faults {
				fmt.Fprintf(stderr, "\nchaos: %s, round %d: %s\n", p.name, no, f)
			}
			if len(r.faults) > 0 {
				fmt.Fprintf(stderr, "again: make chaos SEED=%d PARTS=%s ROUND=%d\n\n", c.seed, p.name, no)
			}
			progress(stderr, time.Since(start), c.time, rounds)
		}
		if c.round >= 0 {
			break
		}
	}
	return rounds
}

// progress rewrites the line of a terminal, and adds one every half minute to a file.
var progressAt time.Time

func progress(w io.Writer, spent, total time.Duration, rounds []*round) {
	f, file := w.(*os.File)
	st, err := func() (os.FileInfo, error) {
		if !file {
			return nil, os.ErrInvalid
		}
		return f.Stat()
	}()
	terminal := err == nil && st.Mode()&os.ModeCharDevice != 0
	if !terminal && time.Since(progressAt) < 30*time.Second {
		return
	}
	progressAt = time.Now()
	broken := 0
	for _, r := range rounds {
		broken += min(1, len(r.faults))
	}
	text := fmt.Sprintf("chaos: %v of %v, %d rounds, %d broken", spent.Round(time.Second), total, len(rounds), broken)
	if terminal {
		fmt.Fprintf(w, "\r%s\x1b[K", text)
		return
	}
	fmt.Fprintln(w, text)
}

// table sums up: rounds and faults by part, then figures.
func table(w io.Writer, ps []*part, rounds []*round) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	defer t.Flush()
	fmt.Fprintf(t, "\npart\trounds\tbroken\tfigure\tn\tp50\tp99\tmax\n")
	for _, p := range ps {
		n, broken := 0, 0
		took, counts := map[string][]time.Duration{}, map[string]int{}
		for _, r := range rounds {
			if r.part != p {
				continue
			}
			n++
			broken += min(1, len(r.faults))
			for k, v := range r.took {
				took[k] = append(took[k], v...)
			}
			for k, v := range r.counts {
				counts[k] += v
			}
		}
		fmt.Fprintf(t, "%s\t%d\t%d\t", p.name, n, broken)
		first := true
		row := func(format string, args ...any) {
			if !first {
				fmt.Fprint(t, "\t\t\t")
			}
			first = false
			fmt.Fprintf(t, format+"\n", args...)
		}
		for _, k := range sorted(took) {
			v := slices.Sorted(slices.Values(took[k]))
			at := func(q float64) time.Duration { return v[int(q*float64(len(v)-1))].Round(10 * time.Microsecond) }
			row("%s\t%d\t%v\t%v\t%v", k, len(v), at(0.5), at(0.99), at(1))
		}
		for _, k := range sorted(counts) {
			row("%s\t%d", k, counts[k])
		}
		if first {
			fmt.Fprintln(t)
		}
	}
}

func sorted[V any](m map[string]V) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// save writes a line of JSON for each round.
func save(path string, rounds []*round) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	enc := json.NewEncoder(f)
	for _, r := range rounds {
		if err := enc.Encode(map[string]any{"part": r.part.name, "round": r.no, "faults": r.faults, "ns": r.took, "counts": r.counts}); err != nil {
			return err
		}
	}
	return f.Close()
}
