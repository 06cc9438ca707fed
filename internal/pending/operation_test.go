package pending

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// work records what is asked of it.
type work struct {
	Operation
	log    *[]string
	name   string
	blamed error
}

func newWork(log *[]string, name string) *work {
	w := &work{log: log, name: name}
	w.Bind(w)
	w.Begin(false)
	return w
}

func (w *work) note(what string)        { *w.log = append(*w.log, what+" "+w.name) }
func (w *work) Start()                  { w.note("start") }
func (w *work) Poll() bool              { return true }
func (w *work) Blame(err error)         { w.blamed = err }
func (w *work) Describe() (string, int) { return w.name, 3 }
func (w *work) Recycle()                { w.note("recycle") }

func TestInboxKeepsTheOrder(t *testing.T) {
	var log []string
	var in Inbox
	require.False(t, in.TakeOver())
	for _, name := range []string{"a", "b", "c"} {
		in.Push(&newWork(&log, name).Operation)
	}
	require.True(t, in.Pending())
	require.True(t, in.TakeOver())
	require.False(t, in.Pending())
	require.Equal(t, []string{"start a", "start b", "start c"}, log)
}

// An operation that is waited for stays the waiter's until it is claimed, and is claimed
// once; what its error was does not come back with the next use.
func TestOperationIsClaimedOnce(t *testing.T) {
	var log []string
	w := newWork(&log, "a")
	gen := w.Gen()
	w.Err = errors.New("failed")
	w.Finish()
	require.True(t, w.Done())
	require.Empty(t, log)
	require.True(t, w.Claim(gen))
	require.False(t, w.Claim(gen))
	w.Release()
	require.Equal(t, []string{"recycle a"}, log)
	require.NoError(t, w.Err)
	require.NoError(t, w.blamed)
}

// What an earlier use found is not the result of a later one that fails.
func TestOperationForgetsItsValue(t *testing.T) {
	var log []string
	w := newWork(&log, "a")
	w.Value = 1<<64 - 1
	w.Finish()
	require.True(t, w.Claim(w.Gen()))
	w.Release()
	w.Begin(false)
	require.Zero(t, w.Value)
}

// An operation that was given up goes back when it ends, or at once if it has ended; its
// error goes to the callback, or is kept.
func TestOperationGivenUp(t *testing.T) {
	failed := errors.New("failed")
	for _, before := range []bool{false, true} {
		for _, callback := range []bool{false, true} {
			var log []string
			w := newWork(&log, "a")
			gen := w.Gen()
			var reported error
			f := func(err error) {
				require.Equal(t, []string{"recycle a"}, log, "it may be used again in the callback")
				reported = err
			}
			if !callback {
				f = nil
			}
			w.Err = failed
			if before {
				w.Finish()
			}
			w.Then(f)
			if !before {
				require.Empty(t, log)
				require.True(t, w.InFlight(gen))
				w.Finish()
			}
			require.NotEqual(t, gen, w.Gen())
			require.False(t, w.InFlight(gen))
			require.Equal(t, []string{"recycle a"}, log)
			require.NoError(t, w.Err)
			if callback {
				require.Equal(t, failed, reported)
				require.NoError(t, w.blamed)
			} else {
				require.Equal(t, failed, w.blamed)
			}
		}
	}
}

func TestLookerOnlyWhereAsked(t *testing.T) {
	var log []string
	w := newWork(&log, "a")
	require.Nil(t, w.Poller())
	w.Begin(true)
	require.NotNil(t, w.Poller())
}

func TestReceipts(t *testing.T) {
	var r Receipts
	require.False(t, r.Redeem(0))
	require.False(t, r.Redeemable(0))
	for range 2*receipts + 1 {
		n := r.Issue()
		require.True(t, r.Redeemable(n))
		require.True(t, r.Redeem(n))
		require.False(t, r.Redeemable(n))
		require.False(t, r.Redeem(n))
	}
	first := r.Issue()
	for range 2 * receipts { // more than can be distinguished
		r.Issue()
	}
	for n := first; n <= first+2*receipts; n++ {
		require.True(t, r.Redeem(n))
	}
}
