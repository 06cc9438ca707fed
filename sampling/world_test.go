package sampling

import (
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/sim"
	"github.com/seed33544411/rma/internal/testutil"
)

// world is a link with known costs in a time of its own. Both sides' goroutines
// take turns: one runs until it waits. When both wait for nothing else, time
// jumps to the next event.
type world struct {
	mu     sync.Mutex
	cond   *sync.Cond
	turn   int // whose
	done   [2]bool
	idle   int // waits in a row without an event
	t      float64
	events []happening // by time
	noise  *rand.Rand

	// Costs in ns: of posting, of an operation of m bytes, between two, one way,
	// of the answer to a read, of registering.
	a, b, g, ls, lh float64
	os              func(m int) float64
	reg             func(m int) float64
	private         func(m int) float64 // of reading private memory; nil: not in another way
	jitter          float64             // of the one-way time, as a fraction, only ever added
	hiccup          float64             // chance that an operation takes a time slice more
	crowd           float64             // an operation behind another takes this fraction longer
}

type happening struct {
	at float64
	do func()
}

func (w *world) at(t float64, do func()) {
	i := len(w.events)
	for i > 0 && w.events[i-1].at > t {
		i--
	}
	w.events = append(w.events, happening{})
	copy(w.events[i+1:], w.events[i:])
	w.events[i] = happening{t, do}
}

// fire carries out what is due.
func (w *world) fire() {
	for len(w.events) > 0 && w.events[0].at <= w.t {
		do := w.events[0].do
		w.events = w.events[1:]
		do()
		w.idle = 0
	}
}

// wait is a side's pause: the other side runs, and time when nobody has
// anything to do.
func (w *world) wait(me int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.idle++
	if w.idle >= 4 {
		w.idle = 0
		if len(w.events) > 0 {
			w.t = math.Max(w.t, w.events[0].at)
			w.fire()
		} else {
			w.t += 1e6 // a time-out is what they wait for
		}
	}
	w.turn = 1 - me
	w.cond.Broadcast()
	for w.turn != me && !w.done[1-me] {
		w.cond.Wait()
	}
	w.turn = me
}

// enter waits for the side's first turn, leave gives the turn up for good.
func (w *world) enter(me int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.turn != me && !w.done[1-me] {
		w.cond.Wait()
	}
	w.turn = me
}

func (w *world) leave(me int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done[me] = true
	w.turn = 1 - me
	w.cond.Broadcast()
}

func (w *world) now() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return int64(w.t)
}

// extra is the disturbance of one operation.
func (w *world) extra(base float64) float64 {
	x := base * w.jitter * w.noise.Float64()
	if w.noise.Float64() < w.hiccup {
		x += 3e6 * w.noise.Float64()
	}
	return x
}

// slow is a link of the simulated network whose requests take their time.
type slow struct {
	fabric.Link
	w *world
}

func (l *slow) Register(mem []byte, a fabric.Access) (fabric.Region, error) {
	l.w.mu.Lock()
	l.w.t += l.w.reg(len(mem))
	l.w.mu.Unlock()
	return l.Link.Register(mem, a)
}

func (l *slow) Poll(cs []fabric.Completion) int {
	l.w.mu.Lock()
	l.w.fire()
	l.w.mu.Unlock()
	return l.Link.Poll(cs)
}

// slowEP delays: requests reach the simulated network, which carries them out
// at once, when they would arrive.
type slowEP struct {
	fabric.Endpoint
	w    *world
	free float64 // when the adapter is
}

func (e *slowEP) Post(wrs []fabric.WR) (int, error) {
	w := e.w
	w.mu.Lock()
	defer w.mu.Unlock()
	w.idle = 0
	w.t += w.a + w.b*float64(len(wrs))
	for _, r := range wrs {
		start := math.Max(w.t, e.free)
		busy := w.os(int(r.Len()))
		if start > w.t {
			busy *= 1 + w.crowd
		}
		e.free = start + busy + w.g
		arrive := start + busy + w.extra(w.ls) + w.ls
		r.Local = append([]fabric.SGE(nil), r.Local...)
		if r.Flags&fabric.FlagInline != 0 && len(r.Local) > 0 {
			// What a post copies must not change under way.
			buf := append([]byte(nil), fabric.BytesAt(r.Local[0].Addr, int(r.Local[0].Len))...)
			addr := r.Local[0].Addr
			n := len(buf)
			arrival := func() {
				save := append([]byte(nil), fabric.BytesAt(addr, n)...)
				copy(fabric.BytesAt(addr, n), buf)
				e.send(r)
				copy(fabric.BytesAt(addr, n), save)
			}
			w.later(arrive, r, arrival)
			continue
		}
		w.later(arrive, r, func() { e.send(r) })
	}
	return len(wrs), nil
}

// ReadPrivate implements fabric.PrivateReader.
func (l *slow) ReadPrivate(dst, src []byte) bool {
	if l.w.private == nil {
		return false
	}
	l.w.mu.Lock()
	l.w.t += l.w.private(copy(dst, src))
	l.w.mu.Unlock()
	return true
}

// later schedules an arrival; of a read or a signalled request the completion
// is on its way back for as long again.
func (w *world) later(arrive float64, r fabric.WR, do func()) {
	if r.Op == fabric.OpRead {
		arrive += w.lh // the data is here then
		w.at(arrive, do)
		return
	}
	w.at(arrive, do)
}

func (e *slowEP) send(r fabric.WR) {
	if _, err := e.Endpoint.Post([]fabric.WR{r}); err != nil {
		panic(err)
	}
}

// inWorld makes two sessions over a link with the world's costs.
func inWorld(t *testing.T, w *world, o Options) (a, b *Session) {
	w.cond = sync.NewCond(&w.mu)
	if w.noise == nil {
		w.noise = rand.New(rand.NewPCG(1, 9))
	}
	la, lb := simLinks(sim.Options{})(t)
	ea, eb := join(t, la, lb, fabric.EndpointOptions{Depth: 1024, PeerTimeout: time.Hour})
	var ss [2]*Session
	for i, l := range []fabric.Link{la, lb} {
		oi := o
		oi.First, oi.EP, oi.clock, oi.pause = i == 0, epID, w.now, func() { w.wait(i) }
		s, err := Open(&slow{l, w}, &slowEP{Endpoint: []fabric.Endpoint{ea, eb}[i], w: w}, oi)
		require.NoError(t, err)
		ss[i] = s
	}
	require.NoError(t, ss[0].Connect(ss[1].Setup()))
	require.NoError(t, ss[1].Connect(ss[0].Setup()))
	t.Cleanup(func() { closeAll(t, ss[0], ss[1]) })
	return ss[0], ss[1]
}

// inTurns is agreed for the sides of a world.
func inTurns(t *testing.T, w *world, a, b *Session) Result {
	t.Helper()
	ctx := testutil.Context(t, 60*time.Second)
	var out [2]outcome
	var wg sync.WaitGroup
	for i, s := range []*Session{a, b} {
		wg.Go(func() {
			w.enter(i)
			defer w.leave(i)
			out[i].r, out[i].err = s.Run(ctx)
		})
	}
	wg.Wait()
	require.NoError(t, out[0].err)
	require.NoError(t, out[1].err)
	require.Equal(t, out[0].r.Tables, out[1].r.Tables)
	return out[0].r
}
