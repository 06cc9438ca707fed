//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/seed33544411/rma/internal/bytesize"
)

// overlapOptions are the flags of the overlap command.
type overlapOptions struct {
	benchOptions
	rate, fabric, ratios string
}

func parseOverlap(args []string) (overlapOptions, error) {
	var o overlapOptions
	fs := o.flags("overlap", "guests", 1)
	fs.StringVar(&o.rate, "rate", "1M", "the rate of the wire in either direction, in bytes a second: so low that the processors have little to do")
	fs.StringVar(&o.fabric, "fabric", "verbs", "verbs or tcp")
	fs.StringVar(&o.sizes, "sizes", "64K,1M", "sizes")
	fs.StringVar(&o.ops, "ops", "message,put,get", "message, put, get")
	fs.StringVar(&o.ratios, "ratios", "1", "lengths of the computation, as multiples of the communication")
	if err := parseFlags(fs, args); err != nil {
		return o, err
	}
	return o, o.check()
}

// cmdOverlap implements `softroce overlap`: rmabench overlap between two guests on a wire whose
// rate is limited, so that a transfer takes long and little processor time.
func cmdOverlap(ctx context.Context, args []string) (int, error) {
	o, err := parseOverlap(args)
	if err != nil {
		return 0, err
	}
	lines, code, err := runBench(ctx, o.Options, "overlap.jsonl", o.steps)
	if err != nil {
		return code, err
	}
	if err := printOverlap(os.Stdout, lines); err != nil {
		return harnessFailure, err
	}
	return code, nil
}

// overlapRank runs its arguments as the rank of this guest.
const overlapRank = `export RMA_RANK="$NODE"
[ "$NODE" != 0 ] || export RMA_SERVE=1
exec "$@"
`

// steps returns the step that both guests run: the ranks of a job, of which rank 0 prints.
func (o *overlapOptions) steps(bench string) ([]Step, error) {
	rate, err := bytesize.Parse(o.rate)
	if err != nil || rate < 1<<16 {
		return nil, usagef("-rate %q: want bytes a second", o.rate)
	}
	if o.fabric != "verbs" && o.fabric != "tcp" {
		return nil, usagef("-fabric %q: want verbs or tcp", o.fabric)
	}
	return []Step{{
		Name: fmt.Sprintf("%s, %s a second", o.fabric, o.rate), Timeout: stepTimeout, Rates: []int64{rate},
		Env:  []string{"RMA_SIZE=2", "RMA_ROOT=" + nodeAddr(0) + ":7117", "RMA_TOKEN=5eed5eed5eed5eed5eed5eed5eed5eed", "RMA_FABRIC=" + o.fabric},
		Argv: append(append([]string{"sh", "-c", overlapRank, "sh"}, o.argv(bench, "overlap", o.fabric)...), "--op", o.ops, "--ratios", o.ratios),
	}}, nil
}

// printOverlap prints a table in Markdown: for each operation and size the time of the communication alone, and for
// each kind of computation the ratio. Figures are medians over the rounds, with the range of the ratios.
func printOverlap(out io.Writer, lines []string) error {
	type row struct {
		Op     string
		Size   int64
		Factor float64
	}
	var rows []row
	comm, ratio := map[row][]float64{}, map[row]map[string][]float64{}
	for _, l := range lines {
		var r struct {
			row
			Who   string
			Comm  float64 `json:"comm_us"`
			Ratio float64
		}
		if err := json.Unmarshal([]byte(l), &r); err != nil {
			return fmt.Errorf("result %q: %w", l, err)
		}
		if ratio[r.row] == nil {
			rows, ratio[r.row] = append(rows, r.row), map[string][]float64{}
		}
		comm[r.row] = append(comm[r.row], r.Comm)
		ratio[r.row][r.Who] = append(ratio[r.row][r.Who], r.Ratio)
	}
	var b strings.Builder
	b.WriteString("| operation | size | computation / communication | communication alone, ms | sender computes | receiver computes | both |\n|---|---|---|---|---|---|---|\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s | %s | %g | %.4g |", r.Op, bytesize.Format(r.Size), r.Factor, median(comm[r])/1e3)
		for _, who := range []string{"sender", "receiver", "both"} {
			v := ratio[r][who]
			if len(v) == 0 {
				b.WriteString(" |")
				continue
			}
			fmt.Fprintf(&b, " %.2f (%.2f–%.2f) |", median(v), slices.Min(v), slices.Max(v))
		}
		b.WriteString("\n")
	}
	_, err := io.WriteString(out, b.String())
	return err
}
