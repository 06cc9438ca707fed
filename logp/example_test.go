package logp_test

import (
	"fmt"

	"github.com/seed33544411/rma/logp"
)

// A link of an earlier generation of InfiniBand, with round numbers.
func params() *logp.Params {
	os, _ := logp.NewCurve([]logp.Point{{Size: 0, NS: 600, Conf: 1}, {Size: 2048, NS: 900, Conf: 1}, {Size: 1 << 20, NS: 350000, Conf: 1}})
	or, _ := logp.NewCurve([]logp.Point{{Size: 0, NS: 60, Conf: 1}})
	c, _ := logp.NewCurve([]logp.Point{{Size: 0, NS: 10, Conf: 1}, {Size: 1 << 20, NS: 100000, Conf: 1}})
	return &logp.Params{Os: os, Or: or, C: c, G: 220, Ls: 1000, Lh: 700, CPU: logp.Posting{A: 60, B: 20}}
}

func limits() logp.Limits {
	return logp.Limits{EagerMax: 4080, EagerBlock: 4096, GatherMax: 128 << 10, GatherCopy: 256, MaxSGE: 16,
		ScatterSegs: 64, Header: 16, Segment: 16, DescSegment: 32, ReadRequest: 28}
}

func ExampleCurve_At() {
	c, err := logp.NewCurve([]logp.Point{{Size: 0, NS: 100, Conf: 1}, {Size: 1000, NS: 300, Conf: 1}})
	fmt.Println(c.At(500), c.At(2000), err)
	// Output: 200 500 <nil>
}

func ExampleParams_Choose() {
	p := params()
	for _, b := range []logp.Batch{
		{Messages: logp.Uniform(1, 8), Limits: limits()},
		{Messages: logp.Uniform(16, 64), Limits: limits()},
		{Messages: logp.Uniform(1, 1<<20), Limits: limits()},
	} {
		d, _ := p.Choose(&b)
		fmt.Printf("%d x %d: %v, %.1f µs\n", len(b.Messages), b.Messages[0].Size, d.Mode, d.Costs[d.Mode].Total()/1000)
	}
	// Output:
	// 1 x 8: eager, 1.8 µs
	// 16 x 64: gather, 2.4 µs
	// 1 x 1048576: scatter, 354.1 µs
}
