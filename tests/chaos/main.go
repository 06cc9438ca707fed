//go:build linux

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

// parts are all ways of disturbing a job, in the order of their turns.
var parts = []*part{
	{"death", "SIGKILL at a random moment", death},
	{"pause", "SIGSTOP, a freezer or SCHED_IDLE, and an end of it in time", pause},
	{"hang", "SIGSTOP or a freezer for good", hang},
	{"close", "regions closed while peers write to them", closing},
	{"wire", "the carrier of a network is lost, for a moment or for good", wire},
	{"flaps", "sockets of rails are shut down again and again", flaps},
	{"interfaces", "network interfaces of rails go down and up again and again", interfaces},
	{"ports", "ports of RDMA devices fall silent, go down or lose their address, and come back; in a guest", ports},
	{"netem", "a network that loses, delays, doubles, reorders and changes packets, cuts and forged resets; over verbs in a guest", netem},
	{"hostile", "a rank that lies to the others when they connect", hostile},
	{"mutant", "a rank that changes what it sends to the others", mutants},
	{"secrecy", "a relay without the token that records, changes and replays", secrecy},
	{"sniffer", "somebody who reads the network and says again what was said", sniffer},
	{"users", "another user of the host, at processes, memory, files and sockets", users},
	{"limits", "few descriptors, little memory or address space, system calls that fail", limits},
	{"strangers", "floods of connections to every port", strangers},
	{"crowd", "latency of a pair beside floods of connections", crowd},
}

const usage = `usage: chaos [flags]

Starts jobs of rma and kills, stops, starves and floods them until the time is over.
For every failure it prints the command that repeats the round.

At the end it prints a table of the parts, the number of checks and violations of each
guarantee, and the parts that this machine does not support. Column over counts times beyond
the guaranteed bound: a machine with fewer processors than processes has some; times far
beyond it are failures.

Exit code: 0 all guarantees held, 1 a guarantee was violated, 2 bad flags, 125 the guest failed,
130 interrupted before the time was up.

Examples:
  chaos --time 10m                           a new seed
  chaos --seed 7 --parts death,hang --time 2h
  chaos --seed 7 --parts death --round 3     one round again
  chaos --vm qemu --parts netem              in a guest

Parts:
`

func main() {
	if asked, err := child(); asked {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// child runs the role that the environment gives this process, if any.
func child() (asked bool, err error) {
	if spec, is := os.LookupEnv(workEnv); is {
		return true, runRank(spec)
	}
	if spec, is := os.LookupEnv(intruderEnv); is {
		return true, runIntruder(spec)
	}
	return false, nil
}

// campaign holds the flags' values.
type campaign struct {
	seed  uint64
	time  time.Duration
	parts []*part
	round int
	json  string
	vm    string
}

func run(args []string, stdout, stderr io.Writer) int {
	c, err := parse(args, stderr)
	if err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		fmt.Fprintln(stderr, "chaos:", err)
		return 2
	}
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP}
	ctx, stop := signal.NotifyContext(context.Background(), slices.DeleteFunc(ends, signal.Ignored)...) // nohup
	defer stop()
	if c.vm != "" {
		return inGuest(ctx, c, stdout, stderr)
	}
	if c.json != "" { // rather than lose the results of hours
		if err := save(c.json, nil); err != nil {
			fmt.Fprintln(stderr, "chaos:", err)
			return 2
		}
	}
	rounds := c.run(ctx, stderr)
	table(stdout, c.parts, rounds)
	crowds(stdout, rounds)
	promises(stdout, rounds)
	if c.json != "" {
		if err := save(c.json, rounds); err != nil {
			fmt.Fprintln(stderr, "chaos:", err)
			return 1
		}
	}
	failed := broken(rounds)
	fmt.Fprintf(stdout, "%d passed, %d failed (seed %d)\n", len(rounds)-failed, failed, c.seed)
	if ctx.Err() != nil {
		fmt.Fprintln(stderr, "chaos: interrupted")
		return 130
	}
	return min(1, failed)
}

// broken returns the number of rounds with faults.
func broken(rounds []*round) (n int) {
	for _, r := range rounds {
		n += min(1, len(r.faults))
	}
	return n
}

func parse(args []string, stderr io.Writer) (*campaign, error) {
	c := &campaign{}
	f := flag.NewFlagSet("chaos", flag.ContinueOnError)
	f.SetOutput(stderr)
	var names []string
	for _, p := range parts {
		names = append(names, p.name)
	}
	f.Usage = func() {
		fmt.Fprint(stderr, usage)
		for _, p := range parts {
			fmt.Fprintf(stderr, "  %-10s %s\n", p.name, p.what)
		}
		fmt.Fprint(stderr, "\nFlags:\n")
		f.PrintDefaults()
	}
	f.Uint64Var(&c.seed, "seed", rand.Uint64()>>32, "seed of all random choices")
	f.DurationVar(&c.time, "time", 10*time.Minute, "duration of the campaign")
	f.IntVar(&c.round, "round", -1, "only this round of each part")
	list := f.String("parts", strings.Join(names, ","), "what to do")
	f.StringVar(&c.vm, "vm", "", "qemu: run in a guest whose kernel has netem (uses tests/softroce of the project)")
	f.StringVar(&c.json, "json", "", "write one JSON line per round to this file")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	switch c.vm {
	case "", "qemu":
	case "uml":
		return nil, errors.New("--vm uml: User-Mode Linux has one processor and no control groups, the campaign needs both: use qemu")
	default:
		return nil, fmt.Errorf("--vm %q: want qemu", c.vm)
	}
	for _, name := range strings.Split(*list, ",") {
		i := slices.Index(names, name)
		if i < 0 {
			return nil, fmt.Errorf("unknown part %q: want %s", name, strings.Join(names, ", "))
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
				fmt.Fprintf(stderr, "again: %s\n\n", r.again(c.seed))
			}
			progress(stderr, time.Since(start), c.time, rounds)
		}
		if c.round >= 0 {
			break
		}
	}
	return rounds
}

// progressAt is the time of the last line of progress: on a terminal the line is rewritten,
// in a file there is one every half minute.
var progressAt time.Time

func progress(w io.Writer, spent, total time.Duration, rounds []*round) {
	terminal := false
	if f, is := w.(*os.File); is {
		st, err := f.Stat()
		terminal = err == nil && st.Mode()&os.ModeCharDevice != 0
	}
	if !terminal && time.Since(progressAt) < 30*time.Second {
		return
	}
	progressAt = time.Now()
	text := fmt.Sprintf("chaos: %v of %v, %d rounds, %d broken", spent.Round(time.Second), total, len(rounds), broken(rounds))
	if terminal {
		fmt.Fprintf(w, "\r%s\x1b[K", text)
		return
	}
	fmt.Fprintln(w, text)
}
