package initiator

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/linktest"
	"github.com/seed33544411/rma/fabric/sim"
	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/onesided"
	"github.com/seed33544411/rma/mr"
)

// road is an endpoint whose requests take simulated time, one after the other, and move nothing.
type road struct {
	fabric.Endpoint
	net     *roads
	perByte float64 // ns
	free    time.Time
	before  *road // its requests and those of this one are carried one after the other
}

// roads are the rails of a queue.
type roads struct {
	*side
	rail     []*road
	piece    uint64    // length of the pieces of operations; 0: they are not vectors
	inFlight []arrival // by time
}

type arrival struct {
	at time.Time
	c  fabric.Completion
}

const roadLatency = 10 * time.Microsecond

// newRoads returns a queue over rails of the given times per byte, in ns.
func newRoads(t *testing.T, perByte ...float64) *roads {
	l, _ := linktest.Sim(sim.Options{})(t)
	r := &roads{side: newSideIdle(t, l)}
	for _, g := range perByte {
		r.rail = append(r.rail, &road{net: r, perByte: g})
	}
	r.Prog.Do(func() {
		r.Queue.Up(r.rail[0])
		for i := 1; i < len(perByte); i++ {
			mine, err := l.Alloc(MarksSize, fabric.AccessAll)
			require.NoError(t, err)
			r.Queue.Rails().Marks(i, mine)
			r.Queue.Rails().Up(i, r.rail[i], mine.Key())
		}
	})
	t.Cleanup(func() { r.close(t) })
	return r
}

// Post implements fabric.Endpoint.
func (r *road) Post(wrs []fabric.WR) (int, error) {
	for i := range wrs {
		free := &r.free
		if r.before != nil {
			free = &r.before.free
		}
		if now := time.Now(); free.Before(now) {
			*free = now
		}
		*free = free.Add(time.Duration(r.perByte * float64(wrs[i].Local[0].Len)))
		if wrs[i].Flags&fabric.FlagSignaled == 0 {
			continue
		}
		a := arrival{free.Add(roadLatency), fabric.Completion{ID: wrs[i].ID, Op: wrs[i].Op}}
		at, _ := slices.BinarySearchFunc(r.net.inFlight, a, func(a, b arrival) int { return a.at.Compare(b.at) })
		r.net.inFlight = slices.Insert(r.net.inFlight, at, a)
	}
	return len(wrs), nil
}

// run keeps window operations of n bytes in flight for a time, and returns the bytes per ns.
func (r *roads) run(k Kind, n uint32, window int, t time.Duration) float64 {
	var keys [mr.MaxRails]PartKeys
	for i := range r.rail {
		keys[i].Has = true
	}
	began, bytes := time.Now(), 0.0
	end := time.Time{}
	var open []*Op
	for time.Since(began) < t || len(open) > 0 {
		for len(open) < window && time.Since(began) < t {
			o := New(&r.Queue, k)
			if r.piece == 0 {
				o.Local(fabric.SGE{Len: n})
				o.Divide(&keys)
			} else {
				c := o.Cursor()
				for at := uint64(0); at < uint64(n); at += r.piece {
					c.AddLocal(onesided.Piece{Addr: 2 * at, Len: r.piece})
					c.AddRemote(onesided.Piece{Addr: 2 * at, Len: r.piece})
				}
				c.End()
				o.DividePieces(&keys)
			}
			o.Start()
			open = append(open, o)
		}
		for r.Step() {
		}
		a := r.inFlight[0]
		r.inFlight = r.inFlight[1:]
		time.Sleep(time.Until(a.at)) // sleep: of a bubble
		if !r.Engine.Complete(&a.c) {
			r.Queue.CompleteControl(&a.c)
		}
		open = slices.DeleteFunc(open, func(o *Op) bool {
			if o.Done() {
				bytes, end = bytes+float64(n), time.Now()
			}
			return o.Done()
		})
	}
	return bytes / float64(end.Sub(began))
}

// bubble returns what f returns with a queue over rails of the given times per byte, in simulated
// time.
func bubble(t *testing.T, perByte []float64, f func(r *roads) float64) (got float64) {
	cpu.NsPerTick() // measured once, in real time
	synctest.Test(t, func(t *testing.T) {
		r := newRoads(t, perByte...)
		r.Prog.Do(func() { got = f(r) })
	})
	return got
}

// Puts and gets get nearly the sum of the rails, whatever the ratio of their rates and the
// number in flight, in the long run.
func TestRailsGetTheSum(t *testing.T) {
	for _, ratio := range []float64{1, 2, 4, 8} {
		for _, window := range []int{1, 4, 16} {
			for k, sizes := range map[Kind]map[uint32]float64{ // least share of the sum
				Get: {32 << 10: 0.85, 512 << 10: 0.95, 2 << 20: 0.95, 8 << 20: 0.95},
				Put: {512 << 10: 0.92, 2 << 20: 0.94, 8 << 20: 0.94}, // a round trip between two
			} {
				for n, least := range sizes {
					if window == 1 && n < 512<<10 {
						continue // little more than the latency
					}
					t.Run(fmt.Sprintf("%v/1:%v/%d/%dK", k, ratio, window, n>>10), func(t *testing.T) {
						t.Parallel()
						share := bubble(t, []float64{ratio, 1}, func(r *roads) float64 {
							op := time.Duration(n) // on the faster rail
							r.run(k, n, window, 300*op)
							return r.run(k, n, window, 1000*op) / (1 + 1/ratio)
						})
						t.Logf("%.3f of the sum", share)
						require.Greater(t, share, least)
						require.Less(t, share, 1.001)
					})
				}
			}
		}
	}
}

// Over slow rails, few operations of each size are enough: the sizes of make rails, in the same
// order, on rails of the same rates, for as long: the first operation, then four series.
func TestRailsLearnByFewOperations(t *testing.T) {
	const sum = 32e6 / 1e9 // bytes per ns
	for _, k := range []Kind{Get, Put} {
		for _, ratio := range []float64{1, 2, 4, 8} {
			t.Run(fmt.Sprintf("%v/1:%v", k, ratio), func(t *testing.T) {
				t.Parallel()
				rates := map[uint32][]float64{}
				bubble(t, []float64{(1 + ratio) / sum, (1 + 1/ratio) / sum}, func(r *roads) float64 {
					for n := uint32(4 << 10); n <= 16<<20; n *= 4 {
						r.run(k, n, 1, 1)
						r.run(k, n, 4, 200*time.Millisecond)
						for range 3 {
							rates[n] = append(rates[n], r.run(k, n, 4, 200*time.Millisecond))
						}
					}
					return 0
				})
				for n, got := range rates {
					slices.Sort(got)
					ofSum := got[1] / sum
					ofBest := ofSum * (1 + 1/ratio)
					t.Logf("%dK: %.3f of the sum, %.2f of the better rail", n>>10, ofSum, ofBest)
					if require.Greater(t, ofBest, 0.85); n >= 1<<20 {
						require.Greater(t, ofSum, 0.98)
					}
				}
			})
		}
	}
}

// Rails that share what limits them, such as a processor, gain nothing by being used together:
// in the long run operations lose less than 2 % by trials.
func TestRailsShareALimit(t *testing.T) {
	for _, k := range []Kind{Get, Put} {
		for _, n := range []uint32{64 << 10, 1 << 20} {
			for _, window := range []int{1, 4, 16} {
				t.Run(fmt.Sprintf("%v/%dK/%d", k, n>>10, window), func(t *testing.T) {
					t.Parallel()
					got := bubble(t, []float64{1, 1.5}, func(r *roads) float64 {
						r.rail[1].before = r.rail[0]
						r.run(k, n, window, 4000*time.Duration(n))
						return r.run(k, n, window, 4000*time.Duration(n))
					})
					alone := 1.0
					if window == 1 {
						alone = float64(n) / (float64(n) + float64(roadLatency))
					}
					t.Logf("%.3f of the better rail", got/alone)
					require.Greater(t, got/alone, 0.98)
				})
			}
		}
	}
}

// When a rail becomes slower or faster, operations are divided by its new rate within 100 ms.
func TestRailsFollowARate(t *testing.T) {
	const some = 100 * time.Millisecond
	for _, k := range []Kind{Get, Put} {
		for _, n := range []uint32{256 << 10, 1 << 20} {
			for _, to := range []float64{1.0 / 8, 1.0 / 2, 2, 8} { // the rate of a rail, over that before
				for of := range 2 {
					t.Run(fmt.Sprintf("%v/%dK/rail %d x %v", k, n>>10, of, to), func(t *testing.T) {
						t.Parallel()
						share := bubble(t, []float64{1, 1}, func(r *roads) float64 {
							r.run(k, n, 4, 3*some)
							r.rail[of].perByte /= to
							r.run(k, n, 4, some)
							return r.run(k, n, 4, some) / (1 + to)
						})
						if k == Put { // a round trip between two
							share *= 1 + (1+to)*float64(roadLatency)/float64(n)
						}
						t.Logf("%.3f of the sum", share)
						require.Greater(t, share, 0.87)
					})
				}
			}
		}
	}
}

// Short operations are at least as fast as over the better rail alone, whatever the ratio of the rates
// and the number in flight: in the long run trials of other ways cost less than 2 %.
func TestRailsAreAsFastAsTheBest(t *testing.T) {
	for _, k := range []Kind{Get, Put} {
		for _, n := range []uint32{4 << 10, 8 << 10, 16 << 10, 64 << 10} {
			for _, ratio := range []float64{1, 2, 4, 8} {
				for _, window := range []int{1, 4, 16} {
					t.Run(fmt.Sprintf("%v/%dK/1:%v/%d", k, n>>10, ratio, window), func(t *testing.T) {
						t.Parallel()
						op := time.Duration(n)
						if window == 1 {
							op += roadLatency
						}
						alone := bubble(t, []float64{1}, func(r *roads) float64 { return r.run(k, n, window, 100*op) })
						got := bubble(t, []float64{ratio, 1}, func(r *roads) float64 {
							r.run(k, n, window, 3000*op)
							return r.run(k, n, window, 6000*op)
						})
						t.Logf("%.3f of the better rail", got/alone)
						require.Greater(t, got/alone, 0.98)
					})
				}
			}
		}
	}
}

// The pieces of a vector get nearly the sum of the rails, whatever the ratio of their rates, and are
// never slower than over the better rail alone.
func TestRailsCarryVectors(t *testing.T) {
	for _, k := range []Kind{Get, Put} {
		for piece, least := range map[uint64]float64{PiecesFrom: 0.92, 256 << 10: 0.96, 1 << 20: 0.97} {
			for _, ratio := range []float64{1, 2, 4, 8} {
				for _, window := range []int{1, 4} {
					t.Run(fmt.Sprintf("%v/%dK/1:%v/%d", k, piece>>10, ratio, window), func(t *testing.T) {
						t.Parallel()
						n := uint32(16 * piece)
						op := time.Duration(n)
						share := bubble(t, []float64{ratio, 1}, func(r *roads) float64 {
							r.piece = piece
							r.run(k, n, window, 100*op)
							return r.run(k, n, window, 300*op) / (1 + 1/ratio)
						})
						t.Logf("%.3f of the sum, %.2f of the better rail", share, share*(1+1/ratio))
						require.Greater(t, share, least)
						require.Less(t, share, 1.001)
					})
				}
			}
		}
	}
}
