package report

import (
	"cmp"
	"image/color"
	"slices"
	"strings"

	"github.com/seed33544411/rma/internal/bench"
)

// series is one curve: the results, by size, of one test and operation that share a name.
// Of several rounds the median round counts.
type series struct {
	name  string
	color color.NRGBA
	rs    []bench.Result
}

// seriesName separates results that do not belong to one curve. It consists of the fabric,
// the label, and the virtual machine unless that is home.
func seriesName(r bench.Result, home string) string {
	name := r.Fabric
	if r.Label != "" {
		name += " " + r.Label
	}
	if v := r.Machine.Virtual; v != home {
		if v == "" {
			v = "bare metal"
		}
		name += " (" + v + ")"
	}
	return name
}

// home returns the virtual machine of most results, "" for none.
func home(rs []bench.Result) string {
	n := map[string]int{}
	best := ""
	for _, r := range rs {
		v := r.Machine.Virtual
		if n[v]++; n[v] > n[best] || n[v] == n[best] && v < best {
			best = v
		}
	}
	return best
}

// fabricColors are distinguishable with any colour vision (Okabe and Ito).
var fabricColors = map[string]color.NRGBA{
	"shm":   {0x00, 0x72, 0xb2, 0xff},
	"tcp":   {0xd5, 0x5e, 0x00, 0xff},
	"verbs": {0x00, 0x9e, 0x73, 0xff},
}

var spareColors = []color.NRGBA{
	{0xcc, 0x79, 0xa7, 0xff}, {0xe6, 0x9f, 0x00, 0xff}, {0x56, 0xb4, 0xe9, 0xff}, {0x44, 0x44, 0x44, 0xff}, {0x8c, 0x6d, 0x31, 0xff},
}

// palette gives series their colours: the first of a fabric gets the fabric's, the others get spare ones.
type palette struct {
	used  map[string]bool
	spare int
}

func newPalette() *palette { return &palette{used: map[string]bool{}} }

func (p *palette) next(fabric string) color.NRGBA {
	if c, ok := fabricColors[fabric]; ok && !p.used[fabric] {
		p.used[fabric] = true
		return c
	}
	p.spare++
	return spareColors[(p.spare-1)%len(spareColors)]
}

// colors gives every series name of the report one colour, the same in all plots.
func colors(rs []bench.Result) map[string]color.NRGBA {
	h := home(rs)
	out := map[string]color.NRGBA{}
	var names []string
	fabric := map[string]string{}
	for n, own := range bench.GroupBy(rs, func(r *bench.Result) string { return seriesName(*r, h) }) {
		names, fabric[n] = append(names, n), own[0].Fabric
	}
	slices.SortFunc(names, func(a, b string) int { // a fabric's plain series gets the fabric's colour
		return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b))
	})
	p := newPalette()
	for _, n := range names {
		out[n] = p.next(fabric[n])
	}
	return out
}

// split groups the results of one test and operation into series.
func split(rs []bench.Result, t bench.Test, op bench.Op, home string, cs map[string]color.NRGBA) []series {
	rs = slices.DeleteFunc(slices.Clone(rs), func(r bench.Result) bool { return r.Test != t || r.Op != op })
	var out []series
	for n, own := range bench.GroupBy(rs, func(r *bench.Result) string { return seriesName(*r, home) }) {
		s := series{name: n, color: cs[n]}
		for _, rounds := range bench.GroupBy(own, func(r *bench.Result) int { return r.Size }) {
			s.rs = append(s.rs, median(rounds))
		}
		slices.SortFunc(s.rs, func(a, b bench.Result) int { return cmp.Compare(a.Size, b.Size) })
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b series) int { return strings.Compare(a.name, b.name) })
	return out
}

// byOperation returns the series of a test by operation, and the names of all of them, sorted.
func byOperation(rs []bench.Result, t bench.Test, home string, cs map[string]color.NRGBA) (by map[bench.Op][]series, names []string) {
	by = map[bench.Op][]series{}
	for _, op := range ops {
		by[op] = split(rs, t, op, home, cs)
		for _, s := range by[op] {
			names = append(names, s.name)
		}
	}
	slices.Sort(names)
	return by, slices.Compact(names)
}

// median returns the round with the median figure of merit.
func median(rounds []bench.Result) bench.Result {
	rounds = slices.Clone(rounds)
	slices.SortStableFunc(rounds, func(a, b bench.Result) int {
		if a.Test == bench.Lat {
			return cmp.Compare(a.LatUS.P50, b.LatUS.P50)
		}
		return cmp.Compare(a.Mmsgs, b.Mmsgs)
	})
	return rounds[(len(rounds)-1)/2]
}
