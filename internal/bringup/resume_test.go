package bringup

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/testutil"
	"github.com/seed33544411/rma/internal/wireup"
)

// echo is an endpoint that answers each letter with the same one.
type echo struct {
	fabric.Endpoint
	fails error
	calls chan struct{}
}

func (e *echo) Outages() (uint64, error) { return 0, nil }
func (e *echo) Seeks() bool              { return false }

func (e *echo) Rejoin(ctx context.Context, by fabric.Courier) error {
	for by.Sent() {
		b, err := by.Next(ctx)
		if err != nil {
			return err
		}
		owned := false
		by.Own(func() { owned = true })
		if !owned {
			return errors.New("not run as the owner")
		}
		if err := by.Send(ctx, b); err != nil {
			return err
		}
	}
	e.calls <- struct{}{}
	return e.fails
}

// Letters reach the endpoint in order once it is connected, and its own the peer. A peer that sends more than
// may wait, or too long ones, or before its request, violates the protocol.
func TestLettersOfEndpoints(t *testing.T) {
	r := newRailRig(t, 0)
	r.job.letters = make(chan string, 10)
	require.NoError(t, r.n.rails[0].alloc())
	told := func(text string) bool { return r.n.c.Told(KeyResume, append(r.n.Numbered(), text...)) }
	require.False(t, told("early"))
	r.n.c.d.mu.Lock()
	r.n.requested = true
	r.n.c.d.mu.Unlock()
	require.False(t, told(string(make([]byte, fabric.MaxLetter+1))))
	require.LessOrEqual(t, len(r.n.Numbered())+fabric.MaxLetter, wireup.MaxSend)
	for i := range maxLetters {
		require.True(t, told(string(rune('a'+i))))
	}
	require.False(t, told("one too many"))
	ep := &echo{calls: make(chan struct{}, 100), fails: errors.New("the test's")}
	r.n.ep = ep
	close(r.n.done)
	testutil.Within(t, testutil.Limit, "the letters are answered", func() {
		for i := range maxLetters {
			require.Equal(t, string(rune('a'+i)), <-r.job.letters)
		}
	})
	testutil.Within(t, testutil.Limit, "each letter is followed by a call", func() {
		for range maxLetters {
			<-ep.calls
		}
	})
	require.True(t, told("")) // the peer's endpoint is down
	require.True(t, r.n.c.Told(KeyResume, []byte("\x07\x00\x00\x00of another connection")), "ignored")
	testutil.Within(t, testutil.Limit, "an empty letter", func() { require.Empty(t, <-r.job.letters) })
	r.n.Rejoin()
	testutil.Within(t, testutil.Limit, "calls without a letter", func() { <-ep.calls; <-ep.calls })
}
