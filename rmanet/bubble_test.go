package rmanet

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/internal/testutil"
)

// Connections are used in a bubble of testing/synctest, with an engine that was opened
// outside: they are created there, carry HTTP and end at deadlines, and the engine
// continues outside.
func TestBubble(t *testing.T) {
	testutil.EachLink(t, func(t *testing.T, fabric string) {
		es := job(t, 2, fabric)
		synctest.Test(t, func(t *testing.T) {
			_, err := rma.Open(context.Background(), nil)
			require.ErrorContains(t, err, "synctest")
			l, err := Listen(es[1], "80")
			require.NoError(t, err)
			srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(w, r.Body)
			})}
			served := make(chan error, 1)
			go func() { served <- srv.Serve(l) }()
			client := &http.Client{Transport: &http.Transport{DialContext: Dialer(es[0])}}
			for range 3 {
				resp, err := client.Get("http://1:80/")
				require.NoError(t, err)
				_, err = io.Copy(io.Discard, resp.Body)
				require.NoError(t, err)
				resp.Body.Close()
			}
			client.CloseIdleConnections()
			require.NoError(t, srv.Close())
			require.ErrorIs(t, <-served, http.ErrServerClosed)

			a, b := connect(t, es, 0, 1)
			require.NoError(t, a.SetReadDeadline(time.Now().Add(20*time.Millisecond)))
			_, err = a.Read(make([]byte, 1))
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
			require.NoError(t, a.SetReadDeadline(time.Time{}))
			end := make(chan error, 1)
			go func() {
				_, err := a.Read(make([]byte, 1))
				end <- err
			}()
			require.NoError(t, a.Close())
			require.ErrorIs(t, <-end, net.ErrClosed)
			require.NoError(t, b.Close())
			time.Sleep(time.Hour) // sleep: of the bubble; nobody waits outside any more: the bubble's clock runs
		})
		a, b := connect(t, es, 0, 1)
		go func() { _, _ = a.Write(make([]byte, 1<<20)) }()
		_, err := io.ReadFull(b, make([]byte, 1<<20))
		require.NoError(t, err)
	})
}
