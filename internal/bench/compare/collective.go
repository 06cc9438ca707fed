package compare

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/seed33544411/rma/internal/bench/collective"
)

// Collective measures collective operations of an MPI library. Close it.
type Collective struct {
	*mpiProgram
	Name string // of the library
}

// NewCollective compiles the program of a library. Errors wrap ErrPeer, ErrFabric or ErrMissing.
func NewCollective(ctx context.Context, fabric, name string) (*Collective, error) {
	m, err := newMPIProgram(ctx, "coll.c", fabric, []string{name})
	return &Collective{m, name}, err
}

// collectiveLimit bounds one run, except for the time of its series.
const collectiveLimit = 2 * time.Minute

// Latency measures every operation and size of r once. The program checks the results.
func (c *Collective) Latency(ctx context.Context, r *collective.Request) (rs []collective.Result, err error) {
	err = c.cells(ctx, "coll", r, func(op string, size int, v []float64) {
		rs = append(rs, collective.Result{Peer: c.Name, Op: op, Size: size, Ranks: r.Ranks, Fabric: c.fabric, Bind: r.Bind.String(), US: v[0], MaxUS: v[1]})
	})
	return rs, err
}

// Hidden measures how much of every operation and size of r a computation hides, once.
func (c *Collective) Hidden(ctx context.Context, r *collective.Request) (hs []collective.Hidden, err error) {
	err = c.cells(ctx, collective.NBC, r, func(op string, size int, v []float64) {
		h := collective.Hidden{What: collective.NBC, Peer: c.Name, Op: op, Size: size, Ranks: r.Ranks, Fabric: c.fabric, Pure: v[0], CPU: v[1], Both: v[2]}
		h.Derive()
		hs = append(hs, h)
	})
	return hs, err
}

// cells runs the program, and calls take with the times of each operation and size.
func (c *Collective) cells(ctx context.Context, what string, r *collective.Request, take func(op string, size int, v []float64)) error {
	var sizes []string
	for _, n := range r.Sizes {
		sizes = append(sizes, strconv.Itoa(n))
	}
	limit := collectiveLimit + 8*time.Duration(r.Cells())*r.Time
	out, err := c.run(ctx, &c.libraries[0], limit, r.Ranks, r.Bound(), what, strings.Join(r.Ops, ","), strings.Join(sizes, ","),
		strconv.FormatFloat(float64(r.Time)/float64(time.Millisecond), 'g', -1, 64))
	if err != nil {
		return fmt.Errorf("collective operations of %s: %w", c.Name, err)
	}
	return parseCells(out, what, r, take)
}

// times is how many times a line of csrc/coll.c has.
var times = map[string]int{"coll": 2, collective.NBC: 3}

// parseCells reads the lines that csrc/coll.c prints for the cells of r, in their order.
func parseCells(out []byte, what string, r *collective.Request, take func(op string, size int, v []float64)) error {
	lines := strings.Split(string(out), "\n")
	for _, op := range r.Ops {
		for _, size := range r.SizesOf(op) {
			want := fmt.Sprintf("%s %s %d ", what, op, size)
			for len(lines) > 0 && !strings.HasPrefix(lines[0], want) {
				lines = lines[1:]
			}
			bad := &OutputError{Program: "coll.c", Want: want + "and times", Line: lastLine(out)}
			if len(lines) == 0 {
				return bad
			}
			bad.Line = lines[0]
			f := strings.Fields(lines[0])[3:]
			v, ok := numbers(f, times[what]+1)
			if !ok || v[0] <= 0 {
				return bad
			}
			take(op, size, v)
			lines = lines[1:]
		}
	}
	return nil
}
