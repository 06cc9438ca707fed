package rma_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"log"

	"github.com/seed33544411/rma"
)

// alone opens a job of one rank and a window of it: the same code runs on any number of
// ranks.
func alone(size int) (*rma.Engine, *rma.Window) {
	ctx := context.Background()
	eng, err := rma.Open(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	w, err := eng.Window(ctx, size)
	if err != nil {
		log.Fatal(err)
	}
	return eng, w
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// Every rank has a part of a window, and accesses those of others by rank and offset.
func ExampleWindow() {
	ctx := context.Background()
	eng, err := rma.Open(ctx, nil)
	check(err)
	defer eng.Close()
	w, err := eng.Window(ctx, 4096)
	check(err)
	to := (eng.Rank() + 1) % eng.Size()
	n := copy(w.Bytes(), "from the left")
	check(eng.Peer(to).Put(w.At(to, 1024), w.Slice(0, n)).Wait(ctx))
	check(eng.Barrier(ctx))
	fmt.Printf("%s\n", w.Bytes()[1024:1024+n])
	check(w.Free(ctx))
	// Output: from the left
}

// Pieces that lie apart, on either side, move in one operation.
func ExampleSpan() {
	ctx := context.Background()
	eng, w := alone(4096)
	defer eng.Close()
	copy(w.Bytes(), "one-sided")
	dst := []rma.Span{w.Span(0, 1000, 3), w.Span(0, 2000, 5)}
	src := []rma.Buffer{w.Slice(4, 5), w.Slice(0, 3)}
	check(eng.Peer(0).PutV(dst, src).Wait(ctx))
	fmt.Printf("%s %s\n", w.Bytes()[1000:1003], w.Bytes()[2000:2005])
	// Output: sid edone
}

// The left column of a matrix of 4 by 4 goes into the right one of another.
func ExampleShape() {
	ctx := context.Background()
	eng, w := alone(4096)
	defer eng.Close()
	a, err := rma.View[float64](w.Slice(0, 16*8))
	check(err)
	b, err := rma.View[float64](w.Slice(1024, 16*8))
	check(err)
	for row := range 4 {
		a[4*row] = float64(row + 1)
	}
	column := rma.Shape{Run: 8, Dims: []rma.Dim{{Count: 4, Local: 4 * 8, Remote: 4 * 8}}}
	check(eng.Peer(0).PutStrided(w.At(0, 1024+3*8), w.Slice(0, 16*8), column).Wait(ctx))
	fmt.Println(b[3], b[7], b[11], b[15])
	// Output: 1 2 3 4
}

// A box of 2 by 2 by 2 bytes out of a cube of 4 by 4 by 4, packed at the target.
func ExampleDim() {
	ctx := context.Background()
	eng, w := alone(4096)
	defer eng.Close()
	for i := range 64 {
		w.Bytes()[i] = byte(i)
	}
	box := rma.Shape{Run: 2, Dims: []rma.Dim{
		{Count: 2, Local: 16, Remote: 4}, // planes
		{Count: 2, Local: 4, Remote: 2},  // rows
	}}
	check(eng.Peer(0).PutStrided(w.At(0, 1024), w.Slice(21, 43), box).Wait(ctx))
	fmt.Println(w.Bytes()[1024:1032])
	// Output: [21 22 25 26 37 38 41 42]
}

// A consumer waits for a count; when it sees the count, the data is there.
func ExampleCond() {
	ctx := context.Background()
	eng, w := alone(4096)
	defer eng.Close()
	me := eng.Rank()
	n := copy(w.Bytes(), "halo")
	check(eng.Peer(me).PutSignal(w.At(me, 1024), w.Slice(0, n), w.At(me, 2048), rma.SignalAdd, 1).Wait(ctx))
	count, err := eng.WaitSignal(ctx, w.Slice(2048, 8), rma.GE, 1)
	check(err)
	fmt.Printf("%d %s\n", count, w.Bytes()[1024:1024+n])
	// Output: 1 halo
}

// A flag may be set, for one writer, or added to, for many.
func ExampleSignalOp() {
	ctx := context.Background()
	eng, w := alone(4096)
	defer eng.Close()
	p := eng.Peer(0)
	check(p.Signal(w.At(0, 0), rma.SignalSet, 40).Wait(ctx))
	check(p.Signal(w.At(0, 0), rma.SignalAdd, 2).Wait(ctx))
	v, err := eng.WaitSignal(ctx, w.Slice(0, 8), rma.EQ, 42)
	check(err)
	fmt.Println(v)
	// Output: 42
}

// Two counters of 4 bytes in one word do not disturb each other.
func ExampleAtomicRequest32() {
	ctx := context.Background()
	eng, w := alone(64)
	defer eng.Close()
	p := eng.Peer(0)
	check(p.FetchAdd32(w.At(0, 0), ^uint32(0)).Request.Wait(ctx))
	old, err := p.FetchAdd32(w.At(0, 0), 2).Wait(ctx)
	check(err)
	next, err := p.FetchOr32(w.At(0, 4), 8).Wait(ctx)
	check(err)
	fmt.Println(old, next, binary.NativeEndian.Uint32(w.Bytes()), binary.NativeEndian.Uint32(w.Bytes()[4:]))
	// Output: 4294967295 0 1 8
}

// The lowest cost that any rank has found, and whether this rank's is lower.
func ExampleFetchRequest() {
	ctx := context.Background()
	eng, w := alone(64)
	defer eng.Close()
	p := eng.Peer(0)
	check(rma.Accumulate(p, w.At(0, 8), rma.Replace, []float64{2.5}).Wait(ctx))
	before, err := rma.Fetch(p, w.At(0, 8), rma.Min, 1.5).Wait(ctx)
	check(err)
	after, err := rma.Fetch(p, w.At(0, 8), rma.Sum, 0.25).Wait(ctx)
	check(err)
	fmt.Println(before, after)
	// Output: 2.5 1.5
}

// Registered memory as numbers.
func ExampleNumber() {
	eng, w := alone(4096)
	defer eng.Close()
	xs, err := rma.View[int32](w.Slice(0, 12))
	check(err)
	copy(xs, []int32{1, 2, 3})
	fmt.Println(len(rma.Bytes(xs)), xs)
	// Output: 12 [1 2 3]
}

// Puts whose requests are not kept: the flush waits for all of them, and returns their
// first error.
func ExamplePeer_Flush() {
	ctx := context.Background()
	eng, w := alone(4096)
	defer eng.Close()
	p := eng.Peer(0)
	for i := range 10 {
		p.Put(w.At(0, 2048+64*i), w.Slice(64*i, 64)).Forget()
	}
	check(p.Flush().Wait(ctx))
	fmt.Println("all there")
	// Output: all there
}

// Requests are used in the order of their completion.
func ExampleWaitAny() {
	ctx := context.Background()
	eng, w := alone(4096)
	defer eng.Close()
	var reqs []rma.Request
	for i := range 3 {
		reqs = append(reqs, eng.Peer(0).Get(w.Slice(64*i, 64), w.At(0, 1024)))
	}
	for range reqs {
		i, err := rma.WaitAny(ctx, reqs...)
		check(err)
		check(reqs[i].Wait(ctx))
		reqs[i] = rma.Request{}
	}
	fmt.Println("three")
	// Output: three
}

// A histogram of all ranks in the memory of one: the data travels once, and the
// target's engine adds it up.
func ExampleAccumulate() {
	ctx := context.Background()
	eng, w := alone(4096)
	defer eng.Close()
	p := eng.Peer(0)
	check(rma.Accumulate(p, w.At(0, 0), rma.Sum, []float64{1, 2, 3}).Wait(ctx))
	check(rma.Accumulate(p, w.At(0, 8), rma.Sum, []float64{10, 10}).Wait(ctx))
	bins, err := rma.View[float64](w.Slice(0, 24))
	check(err)
	fmt.Println(bins)
	// Output: [1 12 13]
}

// Reserves a range in every bin: what was there is where this rank's part begins.
func ExampleGetAccumulate() {
	ctx := context.Background()
	eng, w := alone(4096)
	defer eng.Close()
	p := eng.Peer(0)
	begins := make([]uint64, 3)
	for range 2 {
		check(rma.GetAccumulate(p, begins, w.At(0, 0), rma.Sum, []uint64{10, 20, 30}).Wait(ctx))
	}
	now := make([]uint64, 3)
	check(rma.GetAccumulate(p, now, w.At(0, 0), rma.NoOp, nil).Wait(ctx)) // loads
	fmt.Println(begins, now)
	// Output: [10 20 30] [20 40 60]
}

// Adds to a column of a matrix of 4 rows and 4 columns.
func ExampleAccumulateStrided() {
	ctx := context.Background()
	eng, w := alone(4096)
	defer eng.Close()
	column := rma.Shape2D(4, 8, 8, 8*4)
	check(rma.AccumulateStrided(eng.Peer(0), w.At(0, 8*1), rma.Sum, []float64{1, 2, 3, 4}, column).Wait(ctx))
	matrix, err := rma.View[float64](w.Slice(0, 8*16))
	check(err)
	fmt.Println(matrix[:8])
	// Output: [0 1 0 0 0 2 0 0]
}

// Adds to places that are named one by one.
func ExampleAccumulateV() {
	ctx := context.Background()
	eng, w := alone(4096)
	defer eng.Close()
	dst := []rma.Span{w.Span(0, 24, 8), w.Span(0, 0, 16)}
	check(rma.AccumulateV(eng.Peer(0), dst, rma.Sum, []int64{1, 2, 3}).Wait(ctx))
	xs, err := rma.View[int64](w.Slice(0, 32))
	check(err)
	fmt.Println(xs)
	// Output: [2 3 0 1]
}

// A counter of remote writes: each write adds 1 behind its data, and the target waits for a
// number of them, from whichever ranks they come.
func ExamplePeer_PutSignal_counter() {
	ctx := context.Background()
	eng, w := alone(4096)
	defer eng.Close()
	p := eng.Peer(0)
	for i := range 3 {
		p.PutSignal(w.At(0, 1024+8*i), w.Slice(512, 8), w.At(0, 0), rma.SignalAdd, 1).Forget()
	}
	n, err := eng.WaitSignal(ctx, w.Slice(0, 8), rma.GE, 3)
	fmt.Println(n, err)
	// Output: 3 <nil>
}

// More memory, attached to a window after its creation: its owner writes the key to a place
// of the window that all know, and peers get it from there.
func ExampleKey_attached() {
	ctx := context.Background()
	eng, w := alone(4096)
	defer eng.Close()
	more, err := eng.Alloc(1 << 16)
	check(err)
	key := more.Key()
	copy(w.Bytes(), key.Append(nil))

	found := make([]byte, rma.KeySize) // on another rank
	p := eng.Peer(0)
	check(p.GetBytes(found, w.At(0, 0)).Wait(ctx))
	key, err = rma.ParseKey(found)
	check(err)
	check(p.PutBytes(key.At(100), []byte("attached")).Wait(ctx))
	fmt.Printf("%s\n", more.Bytes()[100:108])
	// Output: attached
}

// The maximum over all ranks.
func ExampleReduction() {
	ctx := context.Background()
	eng, w := alone(4096)
	defer eng.Close()
	p := eng.Peer(0)
	for _, seen := range []int64{3, 9, 4} {
		check(rma.Accumulate(p, w.At(0, 0), rma.Max, []int64{seen}).Wait(ctx))
	}
	best, err := rma.View[int64](w.Slice(0, 8))
	check(err)
	fmt.Println(rma.Max, best[0])
	// Output: max 9
}

// Types of one's own are elements too.
func ExampleElement() {
	type meters float32
	ctx := context.Background()
	eng, w := alone(4096)
	defer eng.Close()
	check(rma.Accumulate(eng.Peer(0), w.At(0, 0), rma.Sum, []meters{1.5}).Wait(ctx))
	sum, err := rma.View[meters](w.Slice(0, 4))
	check(err)
	fmt.Println(sum[0])
	// Output: 1.5
}

// Memory of the Go heap as it is: pinned until the request is complete.
func ExamplePeer_PutBytes() {
	ctx := context.Background()
	eng, w := alone(4096)
	defer eng.Close()
	p := eng.Peer(0)
	check(p.PutBytes(w.At(0, 0), rma.Bytes([]uint32{7, 8, 9})).Wait(ctx))
	back := make([]uint32, 3)
	check(p.GetBytes(rma.Bytes(back), w.At(0, 0)).Wait(ctx))
	fmt.Println(back)
	// Output: [7 8 9]
}

// A window of numbers: by element, not by byte.
func ExampleArray() {
	ctx := context.Background()
	eng, w := alone(80)
	defer eng.Close()
	a, err := rma.ArrayOf[float64](w)
	check(err)
	copy(a.Own(), []float64{1, 2, 3})
	check(a.Put(0, 5, a.Own()[:3]).Wait(ctx)) // from the window itself
	check(a.Put(0, 8, []float64{8, 9}).Wait(ctx))
	check(rma.Accumulate(eng.Peer(0), a.At(0, 5), rma.Sum, []float64{10, 10}).Wait(ctx))
	fmt.Println(a.Own())
	// Output: [1 2 3 0 0 11 12 3 8 9]
}

// One rank of each host does the work that its host needs once.
func ExamplePlace() {
	eng, _ := alone(8)
	defer eng.Close()
	me := rma.PlaceOf(eng.Peer(eng.Rank()))
	if me.LocalRank == 0 {
		fmt.Println("the first of", me.LocalSize, "on host", me.Host)
	}
	// Output: the first of 1 on host 0
}

// Work is taken from near peers first.
func ExampleDistance() {
	eng, _ := alone(8)
	defer eng.Close()
	for d := rma.DistanceSelf; d <= rma.DistanceNetwork; d++ {
		for r := range eng.Size() {
			if rma.PlaceOf(eng.Peer(r)).Distance == d {
				fmt.Println(d, r)
			}
		}
	}
	// Output: self 0
}

// A rank waits until a count of 4 bytes, which others lower, is below zero.
func ExampleInteger() {
	ctx := context.Background()
	eng, w := alone(64)
	defer eng.Close()
	rma.Fetch(eng.Peer(0), w.At(0, 4), rma.Sum, int32(-2)).Forget()
	left, err := rma.WaitUntil(ctx, eng, w.Slice(4, 4), rma.LT, int32(0))
	check(err)
	fmt.Println(left)
	// Output: -2
}
