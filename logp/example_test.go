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
		{Messages: uniform(1, 8), Limits: limits()},
		{Messages: uniform(16, 64), Limits: limits()},
		{Messages: uniform(1, 1<<20), Limits: limits()},
	} {
		d, _ := p.Choose(&b)
		fmt.Printf("%d x %d: %v, %.1f µs\n", len(b.Messages), b.Messages[0].Size, d.Mode, d.Costs[d.Mode].Total()/1000)
	}
	// Output:
	// 1 x 8: eager, 1.8 µs
	// 16 x 64: gather, 2.4 µs
	// 1 x 1048576: scatter, 354.1 µs
}

func ExamplePlanner_Plan() {
	pl, err := logp.NewPlanner(params(), nil)
	if err != nil {
		panic(err)
	}
	b := logp.Batch{Messages: append(uniform(30, 64), uniform(2, 60<<10)...), Limits: limits()}
	plan, err := pl.Plan(&b)
	if err != nil {
		panic(err)
	}
	for _, part := range plan.Parts {
		fmt.Println(part.Mode, len(part.Messages), "from", part.Messages[0])
	}
	// Output:
	// scatter 2 from 30
	// gather 30 from 0
}

func ExamplePlanner_Explain() {
	pl, _ := logp.NewPlanner(params(), nil)
	b := logp.Batch{Messages: append(uniform(30, 64), uniform(2, 60<<10)...), Limits: limits()}
	e, _ := pl.Explain(&b)
	fmt.Print(e)
	// Output:
	// 32 messages, 124800 bytes
	//           µs  eager  gather  scatter    plan
	//         post      -   0.080    0.780   0.200
	//         send      -  42.024    0.000   1.023
	//         desc      -   0.000    0.752   0.612
	//      request      -   0.000   19.331   1.208
	//         data      -   0.000   59.705  41.424
	//          gap      -   0.000    6.820   0.440
	//      receive      -   0.060    0.060   0.120
	//     copy_out      -   0.483    0.000   0.483
	//      copy_in      -  12.221    0.000   0.483
	//         soft      -   1.000    2.000   2.000
	//         hard      -   0.000    0.700   0.700
	//        total      -  55.867   90.149  48.693
	//        posts      -       1        1       2
	//        reads      -       0       32       2
	//   confidence      -    1.00     1.00    1.00
	//   ring bytes      -  125328     1040    2496
	// eager: logp: infeasible: message larger than an eager message may be
	// cheapest partition: scatter×2 + gather×30, 48.69 µs; gather alone 55.87 µs (+15 %), saved most in copies and registration (11.74 µs)
}

func ExampleParams_Switches() {
	l := limits()
	for _, s := range params().Switches(&l, 1, logp.Registered|logp.DestRegistered, 1<<20) {
		fmt.Printf("%v below %d bytes, then %v\n", s.From, s.Size, s.To)
	}
	// Output:
	// eager below 257 bytes, then gather
	// gather below 31151 bytes, then scatter
}

// uniform returns n registered messages of one size with known, registered
// destinations.
func uniform(n int, size int64) []logp.Message {
	ms := make([]logp.Message, n)
	for i := range ms {
		ms[i] = logp.Message{Size: size, Flags: logp.Registered | logp.DestRegistered}
	}
	return ms
}
