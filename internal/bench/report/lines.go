package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/seed33544411/rma/internal/bench"
	"github.com/seed33544411/rma/internal/bench/choice"
	"github.com/seed33544411/rma/internal/bench/collective"
	"github.com/seed33544411/rma/internal/bench/overlap"
)

// Add reads JSON lines of rmabench's results into the report: results of lat, bw and rate,
// of plogp, choice, switch, explain, overlap, reactivity, threads, concurrent, load and nbc. Errors wrap bench.ErrFormat and contain the line
// number.
func (r *Report) Add(rd io.Reader) error {
	return bench.EachLine(rd, r.addLine)
}

// addLine recognises the kind of a line by a field that no other kind has.
func (r *Report) addLine(line []byte) (err error) {
	var has struct{ Test, Tables, Points, Summary, Mix, Messages, What json.RawMessage }
	if err := json.Unmarshal(line, &has); err != nil {
		return err
	}
	rd := bytes.NewReader(line)
	switch {
	case has.Test != nil:
		var rs []bench.Result
		rs, err = bench.ReadJSON(rd)
		r.Results = append(r.Results, rs...)
	case has.Tables != nil:
		var rs []bench.PlogpResult
		rs, err = bench.ReadPlogp(rd)
		r.Plogp = append(r.Plogp, rs...)
	case has.Points != nil:
		var cs []choice.Curve
		cs, err = choice.ReadCurves(rd)
		r.Curves = append(r.Curves, cs...)
	case has.Summary != nil, has.Mix != nil:
		var rs []choice.Result
		var ss []choice.Summary
		rs, ss, err = choice.Read(rd)
		r.Cells, r.Summaries = append(r.Cells, rs...), append(r.Summaries, ss...)
	case has.Messages != nil:
		var x choice.Explanation
		if err = json.Unmarshal(line, &x); err == nil && x.Fabric == "" {
			err = errors.New("no fabric")
		}
		r.Explained = append(r.Explained, x)
	case string(has.What) == `"`+collective.NBC+`"`:
		var h collective.Hidden
		if err = json.Unmarshal(line, &h); err == nil && (h.Fabric == "" || h.Op == "") {
			err = fmt.Errorf("operation %q, fabric %q: want an operation over a fabric", h.Op, h.Fabric)
		}
		if err == nil {
			r.Hidden = append(r.Hidden, h)
		}
	case has.What != nil:
		var x overlap.Result
		if err = json.Unmarshal(line, &x); err == nil && (x.What != "overlap" && besideAxes[x.What] == "" || x.Fabric == "") {
			err = fmt.Errorf("what %q, fabric %q: want overlap, reactivity, threads, concurrent, load or nbc over a fabric", x.What, x.Fabric)
		}
		if err == nil {
			r.Overlaps = append(r.Overlaps, x)
		}
	default:
		err = errors.New("no result of rmabench")
	}
	return err
}

// WriteLines writes the report in the format of Add.
func (r *Report) WriteLines(w io.Writer) error {
	return errors.Join(bench.WriteLines(w, r.Results), bench.WriteLines(w, r.Plogp), bench.WriteLines(w, r.Cells),
		bench.WriteLines(w, r.Summaries), bench.WriteLines(w, r.Curves), bench.WriteLines(w, r.Explained), bench.WriteLines(w, r.Overlaps), bench.WriteLines(w, r.Hidden))
}
