package sampling

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/seed33544411/rma/logp"
)

// Tables as they are saved: every curve a flat list of size, ns, confidence. Reading a
// profile at a start takes a quarter of the time of lists of named fields.
type (
	diskTables struct {
		Forward  diskParams `json:"forward"`
		Backward diskParams `json:"backward"`
		Both     diskParams `json:"both"`
		Conf     Conf       `json:"conf"`
		Fit      Fit        `json:"fit"`
	}
	diskParams struct {
		Os    []float64                 `json:"os"`
		Or    []float64                 `json:"or"`
		C     []float64                 `json:"copy"`
		M     []float64                 `json:"memory"`
		R     []float64                 `json:"register"`
		G     float64                   `json:"g"`
		Ls    float64                   `json:"ls"`
		Lh    float64                   `json:"lh"`
		CPU   logp.Posting              `json:"ocpu"`
		Extra [logp.NumModes]logp.Extra `json:"extra"`
	}
)

// marshalTables returns the saved form. Learned factors are not saved: they belong to the
// load of one period.
func marshalTables(t *Tables) ([]byte, error) {
	return json.Marshal(diskTables{flat(&t.Forward), flat(&t.Backward), flat(&t.Both), t.Conf, t.Fit})
}

func flat(p *logp.Params) diskParams {
	list := func(c logp.Curve) []float64 {
		out := make([]float64, 0, 64)
		for _, p := range c.Points() {
			out = append(out, float64(p.Size), p.NS, p.Conf)
		}
		return out
	}
	return diskParams{
		Os: list(p.Os), Or: list(p.Or), C: list(p.C), M: list(p.Memory), R: list(p.R),
		G: p.G, Ls: p.Ls, Lh: p.Lh, CPU: p.CPU, Extra: p.Extra,
	}
}

// parseTables is the inverse of marshalTables, for untrusted input.
func parseTables(b []byte) (t Tables, err error) {
	var d diskTables
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err = dec.Decode(&d); err != nil {
		return t, err
	}
	t.Conf, t.Fit = d.Conf, d.Fit
	for _, x := range []struct {
		to   *logp.Params
		from *diskParams
	}{{&t.Forward, &d.Forward}, {&t.Backward, &d.Backward}, {&t.Both, &d.Both}} {
		if *x.to, err = x.from.params(); err != nil {
			return Tables{}, err
		}
	}
	if err := t.validate(); err != nil {
		return Tables{}, err
	}
	return t, nil
}

func (d *diskParams) params() (p logp.Params, err error) {
	p = logp.Params{G: d.G, Ls: d.Ls, Lh: d.Lh, CPU: d.CPU, Extra: d.Extra}
	for _, c := range []struct {
		to   *logp.Curve
		list []float64
	}{{&p.Os, d.Os}, {&p.Or, d.Or}, {&p.C, d.C}, {&p.Memory, d.M}, {&p.R, d.R}} {
		n := len(c.list) / 3
		if len(c.list)%3 != 0 || n > logp.MaxPoints {
			return p, fmt.Errorf("a curve of %d numbers", len(c.list))
		}
		ps := make([]logp.Point, n)
		for i := range ps {
			x := c.list[3*i:]
			if !(x[0] >= 0 && x[0] <= logp.MaxSize) || x[0] != float64(int64(x[0])) {
				return p, fmt.Errorf("a point at %v bytes", x[0])
			}
			ps[i] = logp.Point{Size: int64(x[0]), NS: x[1], Conf: x[2]}
		}
		if *c.to, err = logp.NewCurve(ps); err != nil {
			return p, err
		}
	}
	return p, nil
}
