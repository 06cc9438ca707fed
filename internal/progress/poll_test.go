//go:build unix

package progress

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/cpu"
)

// polls is a link that counts how often it is polled, and a protocol that finds the
// end of w in memory, without a completion, once the link was polled twice.
type polls struct {
	fabric.Link
	n int
	w *Waiter
}

func (p *polls) Poll([]fabric.Completion) int { p.n++; return 0 }

func (p *polls) Pending() bool                     { return false }
func (p *polls) Refuse()                           {}
func (p *polls) Watches() bool                     { return true }
func (p *polls) Rest(bool) time.Duration           { return 0 }
func (p *polls) Complete(int, []fabric.Completion) {}

func (p *polls) Step() bool {
	if p.n < 2 || p.w.Done() {
		return false
	}
	p.w.Finish()
	return true
}

// A poll of a socket with nothing in it takes as long as a tenth of a round trip.
func TestWhatStepEndsIsNotKeptByAPoll(t *testing.T) {
	open := func() (*Engine, *polls) {
		p := &polls{w: &Waiter{}}
		p.w.Init()
		return &Engine{links: []fabric.Link{p}, proto: p, policy: cpu.Default()}, p // nobody else polls
	}
	t.Run("Wait", func(t *testing.T) {
		e, p := open()
		require.True(t, e.Hold())
		defer e.Disown()
		var sp cpu.Spinner
		require.Equal(t, driveOver, e.drive(t.Context(), &aim{one: p.w}, nil, &sp))
		require.True(t, p.w.Done())
		require.Equal(t, 2, p.n)
	})
	t.Run("WaitAny", func(t *testing.T) {
		e, p := open()
		i, err := e.WaitAny(t.Context(), 0, Waiters{nil, p.w})
		require.NoError(t, err)
		require.Equal(t, 1, i)
		require.Equal(t, 2, p.n)
	})
}
