package session

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/testutil"
	"github.com/seed33544411/rma/internal/wireup"
)

// A client that joins and sends nothing does not block others.
func TestServeDoesNotWaitForASilentClient(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(testutil.Context(t, testutil.Limit))
	token := []byte("sixteen bytes or more")
	at, served := make(chan net.Addr, 1), make(chan error, 1)
	go func() {
		served <- Serve(ctx, "127.0.0.1:0", ServeOptions{Token: token, Hello: time.Millisecond, Ready: func(a net.Addr) { at <- a }})
	}()
	root := (<-at).String()
	for range 3 {
		var j *wireup.Job
		require.Eventually(t, func() (ok bool) { // the next client may connect when the previous one is out
			var err error
			j, err = wireup.Join(ctx, wireup.Config{Size: 2, Root: root, Token: token})
			return err == nil
		}, testutil.Limit, time.Millisecond)
		<-j.Done() // thrown out
		require.NoError(t, j.Close())
	}
	cancel()
	require.ErrorIs(t, <-served, context.Canceled)
}
