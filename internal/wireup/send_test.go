package wireup

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/seed33544411/rma/internal/testutil"
)

func TestSend(t *testing.T) {
	t.Parallel()
	const n, each = 3, 100
	_, root := serve(t, "unix", n+1)
	js := make([]*Job, n)
	for r := range js {
		js[r] = join(t, root, r, n+1)
	}
	ctx := t.Context()
	// What comes before somebody listens is kept, within a bound.
	require.NoError(t, js[1].Send(ctx, 0, "early", []byte{1}))
	require.NoError(t, js[2].Send(ctx, 0, "early", nil))
	heard := make([]chan delivery, n)
	for r, j := range js {
		heard[r] = make(chan delivery, n*each+2)
		j.NotifyReceived(func(from int, key string, val []byte) { heard[r] <- delivery{from, key, val} })
	}
	require.NoError(t, js[0].Send(ctx, 0, "self", nil), "also to oneself")
	for range 2 {
		x := <-heard[0]
		require.Equal(t, "early", x.key)
		require.Len(t, x.val, 2-x.from)
	}
	require.Equal(t, "self", (<-heard[0]).key)

	var g errgroup.Group
	for from, j := range js {
		for to := range n {
			g.Go(func() error {
				for i := range each {
					if err := j.Send(ctx, to, fmt.Sprint(i), []byte{byte(from), byte(to)}); err != nil {
						return err
					}
				}
				return nil
			})
		}
	}
	require.NoError(t, g.Wait())
	for r := range js {
		next := make([]int, n)
		for range n * each {
			x := <-heard[r]
			require.Equal(t, fmt.Sprint(next[x.from]), x.key, "in order")
			require.Equal(t, []byte{byte(x.from), byte(r)}, x.val)
			next[x.from]++
		}
	}

	require.ErrorIs(t, js[0].Send(ctx, 0, "k", make([]byte, MaxSend+1)), ErrTooLarge)
	require.ErrorIs(t, js[0].Send(ctx, n+1, "k", nil), ErrRank)
	err := js[0].Send(ctx, n, "k", nil)
	require.ErrorIs(t, err, ErrPeerGone)
	require.ErrorContains(t, err, "it has not joined")
	require.NoError(t, js[2].Close())
	require.ErrorIs(t, js[0].Send(ctx, 2, "k", nil), ErrPeerGone)
}

// A rank that sends without end does not fill the memory of one that does not
// listen yet.
func TestEarlySendsAreBounded(t *testing.T) {
	t.Parallel()
	_, root := serve(t, "unix", 2)
	js := joinAll(t, root, 2)
	for range 100 {
		require.NoError(t, js[0].Send(t.Context(), 1, "k", make([]byte, MaxSend)))
	}
	require.NoError(t, each(js, func(j *Job) error { return j.Barrier(t.Context(), "b") })) // the values came before this
	n := 0
	js[1].NotifyReceived(func(int, string, []byte) { n++ })
	require.Equal(t, 4, n)
}

// The server says nothing of its own to those who may not hear it.
func TestHostileSends(t *testing.T) {
	t.Parallel()
	_, root := serve(t, "unix", 2)
	victim := join(t, root, 0, 2)
	victim.NotifyReceived(func(int, string, []byte) {})
	c := admitted(t, root, 1, 2)
	m := message{typ: msgSend, id: 1, rank: 9, key: "k"}
	require.NoError(t, c.say(m.append(nil)))
	require.Equal(t, codeRank, c.hear(t).code)
	m = message{typ: msgDeliver, rank: 0, key: "k"} // the server's frame, not a rank's
	require.NoError(t, c.say(m.append(nil)))
	ended(t, c)
	<-victim.Gone(1)
	require.NoError(t, victim.Err())
}

// Who sends without end is held up; who does not read loses neither its place nor
// what was sent to it.
func TestFloodOfSends(t *testing.T) {
	t.Parallel()
	srv, root := serve(t, "unix", 3)
	victim := unbuffered(t, srv, 0, 3) // reads nothing at first
	js := []*Job{join(t, root, 1, 3), join(t, root, 2, 3)}
	ctx, cancel := context.WithCancel(t.Context())
	var g errgroup.Group
	val := make([]byte, MaxSend)
	for range 3 * maxSends {
		g.Go(func() error {
			for {
				if err := js[0].Send(ctx, 0, "k", val); ctx.Err() != nil {
					return nil //nolint:nilerr // the test has ended
				} else if err != nil {
					return err
				}
			}
		})
	}
	held := func(n int) {
		t.Helper()
		require.Eventually(t, func() bool {
			srv.mu.Lock()
			defer srv.mu.Unlock()
			return len(srv.st.clients[0].hears) == n
		}, testutil.Limit, time.Millisecond)
	}
	held(maxSends)
	// Somebody else is heard as well, in his turn.
	g.Go(func() error { return js[1].Send(t.Context(), 0, "other", nil) })
	held(maxSends + 1)
	before := 0
	for victim.hear(t).key != "other" {
		before++
	}
	require.Equal(t, maxSends, before, "he waited for those that were there")
	for range 100 {
		require.Equal(t, "k", victim.hear(t).key)
	}
	cancel() // those that are not on their way are taken back
	go js[0].Send(t.Context(), 0, "again", nil)
	for victim.hear(t).key != "again" {
	}
	require.NoError(t, g.Wait())
	held(0)
	for _, j := range js {
		require.Empty(t, j.GoneReason(0))
	}
}

// A rank that does not keep to the bound goes itself.
func TestSendsBeyondTheBound(t *testing.T) {
	t.Parallel()
	srv, root := serve(t, "unix", 3)
	good := join(t, root, 0, 3)
	victim, liar := admitted(t, root, 1, 3), admitted(t, root, 2, 3)
	victim.SetReadDeadline(time.Time{})
	var b []byte
	for id := range uint32(1000) {
		m := message{typ: msgSend, id: id, rank: 1, key: "k", val: make([]byte, MaxSend)}
		b = m.append(b)
	}
	go liar.say(b) // ends when the connection does
	go io.Copy(io.Discard, liar)
	<-good.Gone(2)
	require.Contains(t, good.GoneReason(2), "sends for rank 1 are open")
	require.Empty(t, good.GoneReason(1))
	srv.mu.Lock()
	waiting := len(srv.st.clients[1].queue)
	srv.mu.Unlock()
	require.LessOrEqual(t, waiting, maxSends+1, "beside the news that the liar is gone")
	require.NoError(t, good.Send(t.Context(), 1, "k", nil))
}

// Connection requests of all ranks of a large job at one that is stopped wait for it, as long
// as it takes.
func TestRequestsToAStoppedRank(t *testing.T) {
	t.Parallel()
	const n = 2048
	s, root := serve(t, "unix", n)
	stopped, good := admitted(t, root, 0, n), join(t, root, 1, n)
	testutil.Holding(&s.mu, func() {
		for r := 2; r < n; r++ {
			c := newClient(s, nil, r) // of the others their requests will do
			c.why = "hears no answers"
			for id := range uint32(maxSends) {
				require.NoError(t, s.st.handle(c, message{typ: msgSend, id: id, rank: 0, key: "ep"}))
			}
		}
	})
	require.NoError(t, good.Put(t.Context(), "k", nil), "nobody waits for it")
	for range (n - 2) * maxSends {
		require.Equal(t, "ep", stopped.hear(t).key)
	}
	require.Empty(t, good.GoneReason(0))
}

// A rank of a large job may wait for every other one at once.
func TestRequestsToAllRanks(t *testing.T) {
	t.Parallel()
	const n = 1100
	s, root := serve(t, "unix", n)
	c := admitted(t, root, 0, n)
	open := 0
	for rank := range uint32(n) {
		for _, key := range []string{"messages", "sums"} {
			m := message{typ: msgGet, id: uint32(open), rank: rank, key: key}
			require.NoError(t, c.say(m.append(nil)))
			open++
		}
	}
	m := message{typ: msgPut, id: uint32(open), key: "k"}
	require.NoError(t, c.say(m.append(nil)))
	require.Equal(t, codeOK, c.hear(t).code)
	testutil.Holding(&s.mu, func() { require.Len(t, s.st.clients[0].waits, open) })
}

// A write lasts for as long as the other end is there.
func TestPatientWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, asked := range []int{1 << 30, 3} {
			here, there := net.Pipe()
			w := &patientWriter{conn: here, every: time.Second, alive: func() bool { asked--; return asked > 0 }}
			start := time.Now()
			if asked == 3 {
				_, err := w.Write([]byte("x"))
				require.ErrorIs(t, err, os.ErrDeadlineExceeded)
				require.Equal(t, 3*time.Second, time.Since(start))
			} else {
				go func() {
					time.Sleep(time.Hour) // sleep: of a clock that does not take its time
					io.ReadFull(there, make([]byte, 1))
				}()
				_, err := w.Write([]byte("x"))
				require.NoError(t, err)
				require.Equal(t, time.Hour, time.Since(start))
			}
			here.Close()
			there.Close()
		}
	})
}

// The host of a process that does not read answers for it.
func TestAcknowledges(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	c, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	c.SetWriteDeadline(time.Now().Add(50 * time.Millisecond)) // deadline: long enough to fill the socket, or not quite
	for err == nil {
		_, err = c.Write(make([]byte, 1<<20))
	}
	require.Equal(t, runtime.GOOS == "linux", acknowledges(c))
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	require.True(t, acknowledges(here))
}

// A wait without limit outlasts the time-out that bounds the others.
func TestUnlimitedWait(t *testing.T) {
	t.Parallel()
	_, root := serve(t, "unix", 2)
	ctx := testutil.Context(t, testutil.Limit)
	j, err := Join(ctx, Config{Rank: 0, Size: 2, Root: root, Token: testToken, Timeout: time.Nanosecond})
	require.NoError(t, err)
	t.Cleanup(func() { j.Close() })
	other := join(t, root, 1, 2)
	life, end := context.WithCancel(t.Context())
	defer end()
	var g errgroup.Group
	g.Go(func() error {
		v, err := j.Get(Unlimited(life), 1, "late")
		if err == nil && string(v) != "v" {
			err = fmt.Errorf("got %q", v)
		}
		return err
	})
	testutil.Eventually(t, testutil.Limit, func() bool {
		j.mu.Lock()
		defer j.mu.Unlock()
		return len(j.calls) == 1
	}, "the wait has begun")
	var late *TimeoutError
	_, err = j.Get(life, 1, "never")
	require.ErrorAs(t, err, &late)
	require.NoError(t, other.Put(ctx, "late", []byte("v")))
	require.NoError(t, g.Wait())
	// It ends with its context all the same.
	g.Go(func() error {
		_, err := j.Get(Unlimited(life), 1, "never")
		return err
	})
	end()
	require.ErrorIs(t, g.Wait(), context.Canceled)
}
