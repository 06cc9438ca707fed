package coll

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/internal/jobtest"
	"github.com/seed33544411/rma/internal/testutil"
)

type angle float64

// Every reduction combines the elements of three ranks, of numbers of all kinds.
func TestReductions(t *testing.T) {
	ts := worlds(t, job(t, 3, "shm"))
	nan, inf := math.NaN(), math.Inf(1)
	reduces(t, ts, "Sum", Sum, [3][]int8{{100, -1}, {100, -2}, {3, -3}}, []int8{-53, -6})
	reduces(t, ts, "Sum", Sum, [3][]complex128{{1 + 2i}, {3i}, {-5}}, []complex128{-4 + 5i})
	reduces(t, ts, "Sum", Sum, [3][]angle{{0.5, angle(inf)}, {0.25, -1}, {1, 2}}, []angle{1.75, angle(inf)})
	reduces(t, ts, "Prod", Prod, [3][]uint16{{300, 7}, {300, 1}, {2, 0}}, []uint16{48928, 0})
	reduces(t, ts, "Prod", Prod, [3][]complex64{{1i}, {1i}, {2}}, []complex64{-2})
	reduces(t, ts, "Min", Min, [3][]int64{{5, math.MinInt64}, {-7, 0}, {6, 1}}, []int64{-7, math.MinInt64})
	reduces(t, ts, "Min", Min, [3][]float32{{1, 2}, {-0.5, 4}, {8, 2}}, []float32{-0.5, 2})
	reduces(t, ts, "Max", Max, [3][]uint64{{5, math.MaxUint64}, {7, 0}, {6, 1}}, []uint64{7, math.MaxUint64})
	reduces(t, ts, "And", And, [3][]uint32{{0xff00ff00, 7}, {0x0ff00ff0, 7}, {^uint32(0), 5}}, []uint32{0x0f000f00, 5})
	reduces(t, ts, "And", And, [3][]bool{{true, true, false}, {true, false, false}, {true, true, false}}, []bool{true, false, false})
	reduces(t, ts, "Or", Or, [3][]int16{{1, 0}, {2, 0}, {-32768, 0}}, []int16{-32765, 0})
	reduces(t, ts, "Or", Or, [3][]bool{{true, true, false}, {true, false, false}, {true, true, false}}, []bool{true, true, false})
	reduces(t, ts, "Xor", Xor, [3][]byte{{0xf0, 1}, {0x3c, 1}, {0xff, 1}}, []byte{0x33, 1})
	reduces(t, ts, "Xor", Xor, [3][]bool{{true, true}, {true, false}, {true, false}}, []bool{true, true})

	// Not a number, in whichever rank's elements, is the smallest and the largest.
	for r := range ts {
		in := [3][]float64{{1}, {2}, {3}}
		in[r][0] = nan
		for name, op := range map[string]Op[float64]{"Min": Min[float64], "Max": Max[float64]} {
			each(t, ts, func(r int, team *Team) error {
				return Allreduce(testutil.Context(t, testutil.Limit), team, nil, in[r], op)
			})
			for _, got := range in {
				require.True(t, math.IsNaN(got[0]), name)
			}
			in = [3][]float64{{1}, {2}, {3}}
			in[r][0] = nan
		}
	}
}

// reduces checks the reduction of one slice a rank.
func reduces[T comparable](t *testing.T, ts []*Team, name string, op Op[T], in [3][]T, want []T) {
	t.Helper()
	var out [3][]T
	each(t, ts, func(r int, team *Team) error {
		out[r] = make([]T, len(want))
		return Allreduce(testutil.Context(t, testutil.Limit), team, in[r], out[r], op)
	})
	for r, got := range out {
		require.Equal(t, want, got, "%s of %T on rank %d", name, want, r)
	}
}

// Bitwise reductions take eight bytes at a time, and what is left.
func TestBitwise(t *testing.T) {
	g := rand.New(rand.NewPCG(3, 4))
	random := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(g.Uint32())
		}
		return b
	}
	for name, c := range map[string]struct {
		op Op[byte]
		f  func(a, b byte) byte
	}{
		"And": {And[byte], func(a, b byte) byte { return a & b }},
		"Or":  {Or[byte], func(a, b byte) byte { return a | b }},
		"Xor": {Xor[byte], func(a, b byte) byte { return a ^ b }},
	} {
		for n := range 40 {
			dst, src, want := random(n + 1)[n%2:][:n], random(n + 2)[n%3:][:n], make([]byte, n) // aligned to words or not
			for i := range want {
				want[i] = c.f(dst[i], src[i])
			}
			o := c.op()
			foldOf(&o, reflect.Uint8)(dst, src, false)
			require.Equal(t, want, dst, "%s of %d bytes", name, n)
		}
	}
}

// A reduction of 512 KiB of words, by the element.
func BenchmarkReduction(b *testing.B) {
	for name, op := range map[string]Op[uint64]{"Sum": Sum[uint64], "Min": Min[uint64], "And": And[uint64], "Or": Or[uint64], "Xor": Xor[uint64]} {
		b.Run(name, func(b *testing.B) {
			dst, src, o := make([]byte, 512<<10), make([]byte, 512<<10), op()
			f := foldOf(&o, reflect.Uint64)
			b.SetBytes(512 << 10)
			for b.Loop() {
				f(dst, src, false)
			}
		})
	}
}

// A reduction of two operands to other memory is made in pieces of whole elements.
func TestCombine(t *testing.T) {
	combineAll(t, []int{0, 1, 5, fusedMax/3 - 1, fusedMax / 3, fusedMax/3 + 1, fusedMax}, func(dst, src [3]uint8) [3]uint8 {
		return [3]uint8{dst[0] - src[0], dst[1] + src[2], dst[2] ^ src[1]}
	})
	combineAll(t, []int{1, 3}, func(dst, src [fusedMax + 1]uint8) [fusedMax + 1]uint8 {
		dst[0], dst[fusedMax] = dst[0]-src[0], dst[fusedMax]*src[fusedMax]
		return dst
	})
}

func combineAll[T comparable](t *testing.T, counts []int, f func(dst, src T) T) {
	t.Helper()
	op := FuncInOrder(func(dst, src []T) {
		for i := range dst {
			dst[i] = f(dst[i], src[i])
		}
	})
	g := rand.New(rand.NewPCG(1, 2))
	random := func(n int) []T {
		s := make([]T, n)
		for i, b := 0, bytesOf(s); i < len(b); i++ {
			b[i] = byte(g.Uint32())
		}
		return s
	}
	for _, n := range counts {
		for _, lower := range []bool{false, true} {
			base, from, to, wants := random(n), random(n), random(n), make([]T, n)
			for i := range n {
				if wants[i] = f(base[i], from[i]); lower {
					wants[i] = f(from[i], base[i])
				}
			}
			var o operation
			require.NoError(t, setArguments(&o.arguments, kindAllreduce, 0, 1, 0, n, whole(base), whole(to), op))
			size := n * int(o.size)
			st := &step{to: mem{2, 0, size}, base: mem{1, 0, size}, lower: lower}
			o.combine(st, 0, bytesOf(from))
			require.NoError(t, equals("combination", wants, to))
			for range 5 { // as a message that lies in parts
				copy(to, random(n))
				a, b := g.IntN(size+1), g.IntN(size+1)
				a, b = min(a, b), max(a, b)
				all := bytesOf(from)
				o.combineParts(st, [][]byte{all[:a], all[a:b], all[b:]})
				require.NoError(t, equals("combination of parts", wants, to), "%d, %d of %d", a, b, size)
			}
		}
	}
}

// panickingChild is both ranks of a job. Rank 0 calls a function that panics, and recovers. The arguments are
// the job's root, and which function.
var panickingChild = testutil.NewChild("panicking", func(args []string, _ *bufio.Reader, out io.Writer) (err error) {
	ts := make([]*Team, 2)
	var g errgroup.Group
	for r := range ts {
		g.Go(func() error {
			e, err := rma.Open(context.Background(), &rma.Config{
				Job: &rma.Job{Rank: r, Size: 2, Root: args[0], Token: jobtest.Token}, Fabric: "tcp", Sampling: "off", SetupTimeout: testutil.Limit,
			})
			if err == nil {
				ts[r], err = World(e)
			}
			if err == nil {
				err = ts[r].Force("barrier=linear,allreduce=linear")
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	defer func() {
		recover()
		_, err = fmt.Fprintln(out, "recovered")
	}()
	switch args[1] {
	case "reduction":
		op := Func(func(_, _ []int64) { panic("from the reduction") })
		StartAllreduce(ts[1], []int64{1}, []int64{0}, op)
		for came := 0; came == 0; { // so that the call here reduces
			testutil.Holding(&ts[0].t.mu, func() { came = len(ts[0].t.early) })
			ts[0].t.eng.Progress()
		}
		StartAllreduce(ts[0], []int64{1}, []int64{0}, op)
	case "end":
		q := StartBarrier(ts[0])
		q.Then(func(error) { panic("from the end") })
		q.Cancel()
	}
	return nil
})

// A panic of a function of the application ends the process, in whichever goroutine: where it could be
// recovered, other calls would hang.
func TestPanicsEndTheProcess(t *testing.T) {
	for _, function := range []string{"reduction", "end"} {
		p := panickingChild.Start(t, jobtest.Serve(t, 2), function)
		line, err := p.Out.ReadString('\n')
		require.ErrorIs(t, err, io.EOF, "%s: %s", function, line)
	}
}
