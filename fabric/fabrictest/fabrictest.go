package fabrictest

import (
	"cmp"
	"testing"
	"time"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/testutil"
)

// Factory describes the links under test.
type Factory struct {
	// Open opens two links in this process whose endpoints can be connected. The suite closes
	// them. Other resources are released by tb.Cleanup.
	Open func(tb testing.TB) (a, b fabric.Link)

	// Kill ends l as the death of its process would, without Close. It is nil for links that
	// cannot do this in one process; their own two-process tests replace the case, which is
	// skipped.
	Kill func(tb testing.TB, l fabric.Link)

	// Slow divides the number of repetitions and multiplies time limits, for an emulated
	// machine; 0 means 1.
	Slow int

	// Deadline bounds every single wait. 0 means testutil.Limit times Slow.
	Deadline time.Duration

	// PeerTimeout of endpoints whose peer closes or dies. 0 means 300 ms.
	PeerTimeout time.Duration

	// AnswersAlone says that requests are acknowledged without the peer's poll although the link has
	// Caps.TargetProgress, so that nobody takes a peer for gone that is not scheduled for long.
	AnswersAlone bool

	// IdleDown says that an endpoint without outstanding requests also detects that its peer
	// closed or died (queue pairs do not).
	IdleDown bool

	// LocalErrors are statuses besides StatusLocalProtection with which the
	// link may end a request whose local piece is wrong.
	LocalErrors []fabric.Status

	// AtomicBeforeLocal says that an atomic with a bad local piece is executed at the target
	// before the error is detected, as with devices, which check the local piece when the
	// result arrives.
	AtomicBeforeLocal bool

	// FullQueue is the reason why a fresh queue may accept less than its depth ("" if it may
	// not), for links that simulate full queues.
	FullQueue string

	// NoAllocs is the reason why allocations cannot be counted ("" if they can), for instance
	// the race detector.
	NoAllocs string
}

// Case is one test of the suite.
type Case struct {
	Name string
	run  func(r *rig)
}

// Cases returns the suite in order.
func Cases() []Case {
	var all []Case
	for _, g := range [][]Case{
		dataCases, atomicCases, orderCases, accessCases, queueCases, wakeCases,
		goneCases, connectCases, allocCases, modelCases,
	} {
		all = append(all, g...)
	}
	return all
}

// Run runs the whole suite as subtests of t, one after the other.
func Run(t *testing.T, f Factory) {
	t.Helper()
	for _, c := range Cases() {
		t.Run(c.Name, func(t *testing.T) { c.Run(t, f) })
	}
}

// Run runs one case. Fatal failures end the calling goroutine, as in tests.
func (c Case) Run(tb testing.TB, f Factory) {
	tb.Helper()
	if f.Slow < 1 {
		f.Slow = 1
	}
	if f.Deadline == 0 {
		f.Deadline = testutil.Limit * time.Duration(f.Slow)
	}
	f.PeerTimeout = cmp.Or(f.PeerTimeout, 300*time.Millisecond)
	c.run(newRig(tb, &f))
}
