package wireup

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/seed33544411/rma/internal/testutil"
)

func TestMain(m *testing.M) {
	CancelTime = testutil.Limit // what a call ends in does not depend on the machine
	testutil.Main(m)
}

var testToken = []byte("a secret of the job")

// serve starts a server on a socket of the given network and returns its root.
func serve(t *testing.T, network string, size int) (*Server, string) {
	addr := "127.0.0.1:0"
	if network == "unix" {
		addr = filepath.Join(t.TempDir(), "s")
	}
	ln, err := net.Listen(network, addr)
	require.NoError(t, err)
	s, err := Serve(t.Context(), ln, ServerConfig{Size: size, Token: testToken})
	require.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	return s, network + ":" + s.Addr().String()
}

func join(t *testing.T, root string, rank, size int) *Job {
	t.Helper()
	j, err := Join(t.Context(), Config{Rank: rank, Size: size, Root: root, Token: testToken, Timeout: testutil.Limit})
	require.NoError(t, err)
	t.Cleanup(func() { j.Close() })
	return j
}

func joinAll(t *testing.T, root string, size int) []*Job {
	t.Helper()
	js := make([]*Job, size)
	for r := range js {
		js[r] = join(t, root, r, size)
	}
	return js
}

func each(js []*Job, f func(j *Job) error) error {
	var g errgroup.Group
	for _, j := range js {
		g.Go(func() error { return f(j) })
	}
	return g.Wait()
}

func TestExchange(t *testing.T) {
	t.Parallel()
	for _, network := range []string{"unix", "tcp"} {
		t.Run(network, func(t *testing.T) {
			t.Parallel()
			const n = 5
			srv, root := serve(t, network, n)
			js := joinAll(t, root, n)
			ctx := t.Context()
			require.NoError(t, each(js, func(j *Job) error {
				// Get waits for what is put later.
				next := (j.Rank() + 1) % n
				var g errgroup.Group
				g.Go(func() error {
					v, err := j.Get(ctx, next, "addr")
					if err == nil && string(v) != fmt.Sprintf("of %d", next) {
						err = fmt.Errorf("rank %d got %q", j.Rank(), v)
					}
					return err
				})
				g.Go(func() error { return j.Put(ctx, "addr", fmt.Appendf(nil, "of %d", j.Rank())) })
				if err := g.Wait(); err != nil {
					return err
				}
				for round := range 20 {
					vs, err := j.AllGather(ctx, "keys", []byte{byte(j.Rank()), byte(round)})
					if err != nil {
						return err
					}
					for r, v := range vs {
						if len(v) != 2 || v[0] != byte(r) || v[1] != byte(round) {
							return fmt.Errorf("round %d: value of %d is %v", round, r, v)
						}
					}
					if err := j.Barrier(ctx, "keys"); err != nil {
						return err
					}
				}
				return nil
			}))
			require.ErrorIs(t, js[0].Put(ctx, "addr", nil), ErrExists)
			require.ErrorIs(t, js[0].Put(ctx, "big", make([]byte, MaxValue+1)), ErrTooLarge)
			require.ErrorIs(t, js[0].Put(ctx, strings.Repeat("k", MaxKey+1), nil), ErrTooLarge)
			_, err := js[0].Get(ctx, n, "addr")
			require.ErrorIs(t, err, ErrRank)
			for _, j := range js {
				require.NoError(t, j.Close())
				require.NoError(t, j.Close())
				require.ErrorIs(t, j.Err(), ErrClosed)
				require.ErrorIs(t, j.Barrier(ctx, "x"), ErrClosed)
			}
			<-srv.Finished()
			require.NoError(t, srv.Err())
			require.Empty(t, srv.st.gathers)
			require.Empty(t, srv.st.gets)
		})
	}
}

func TestValuesReachTheirBound(t *testing.T) {
	t.Parallel()
	_, root := serve(t, "unix", 2)
	js := joinAll(t, root, 2)
	want := make([]byte, MaxValue)
	for i := range want {
		want[i] = byte(i*7 + i>>8)
	}
	require.NoError(t, js[0].Put(t.Context(), strings.Repeat("k", MaxKey), want))
	got, err := js[1].Get(t.Context(), 0, strings.Repeat("k", MaxKey))
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.NoError(t, each(js, func(j *Job) error {
		vs, err := j.AllGather(t.Context(), "big", want)
		if err == nil && (string(vs[0]) != string(want) || string(vs[1]) != string(want)) {
			err = errors.New("values differ")
		}
		return err
	}))
	// What one rank may store is bounded.
	for i := 0; err == nil; i++ {
		require.Less(t, i, 2*maxStored/MaxValue)
		err = js[1].Put(t.Context(), fmt.Sprint(i), want)
	}
	require.ErrorIs(t, err, ErrTooLarge)
}

func TestAlone(t *testing.T) {
	t.Parallel()
	j, err := Join(t.Context(), Config{})
	require.NoError(t, err)
	require.Equal(t, 0, j.Rank())
	require.Equal(t, 1, j.Size())
	require.NoError(t, j.Barrier(t.Context(), "b"))
	vs, err := j.AllGather(t.Context(), "k", []byte("x"))
	require.NoError(t, err)
	require.Equal(t, [][]byte{[]byte("x")}, vs)
	require.NoError(t, j.Put(t.Context(), "k", []byte("y")))
	v, err := j.Get(t.Context(), 0, "k")
	require.NoError(t, err)
	require.Equal(t, "y", string(v))
	require.NoError(t, j.Close())
	<-j.Done()
}

// What ends while it joins says so with the error of its context, also if the server is its own, or
// does not answer.
func TestJoinEndsWithItsContext(t *testing.T) {
	t.Parallel()
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	expired, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	for _, ctx := range []context.Context{canceled, expired} {
		_, err := Join(ctx, Config{})
		require.ErrorIs(t, err, ctx.Err())
		require.NotContains(t, err.Error(), EnvTLSCert)
	}
	ln, err := net.Listen("unix", filepath.Join(t.TempDir(), "silent"))
	require.NoError(t, err)
	defer ln.Close()
	late, stop := context.WithCancel(t.Context())
	go func() {
		defer stop()
		if conn, err := ln.Accept(); err == nil {
			t.Cleanup(func() { conn.Close() })
		}
	}()
	_, err = Join(late, Config{Rank: 1, Size: 2, Root: "unix:" + ln.Addr().String(), Token: testToken})
	require.ErrorIs(t, err, context.Canceled)
	require.NotContains(t, err.Error(), EnvTLSCert, "there is no TLS over such sockets")
}

func TestTimeoutNamesTheMissing(t *testing.T) {
	t.Parallel()
	_, root := serve(t, "unix", 4)
	j0, _ := join(t, root, 0, 4), join(t, root, 2, 4)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond) // deadline: it has to end
	defer cancel()
	err := j0.Barrier(ctx, "start")
	var te *TimeoutError
	require.ErrorAs(t, err, &te)
	require.Equal(t, []int{1, 2, 3}, te.Missing)
	require.ErrorIs(t, err, ErrTimeout)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Regexp(t, `^wireup: barrier "start": timed out: after \d+(\.\d+)?m?s ranks 1, 3 of 4 have not joined, rank 2 has not called it$`, err.Error())
	require.GreaterOrEqual(t, te.After, 40*time.Millisecond)

	ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond) // deadline: it has to end
	defer cancel()
	_, err = j0.Get(ctx, 3, "addr")
	require.Regexp(t, `^wireup: get "addr": timed out: after \S+ rank 3 of 4 has not joined$`, err.Error())

	ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond) // deadline: it has to end
	defer cancel()
	_, err = j0.Get(ctx, 2, "addr")
	require.ErrorContains(t, err, "s rank 2 has not published it")

	ctx, cancel = context.WithCancel(t.Context())
	cancel()
	_, err = j0.Get(ctx, 3, "addr")
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, ErrTimeout)
}

func TestDefaultTimeout(t *testing.T) {
	t.Parallel()
	_, root := serve(t, "unix", 2)
	j, err := Join(context.Background(), Config{Size: 2, Root: root, Token: testToken, Timeout: testutil.Limit})
	require.NoError(t, err)
	defer j.Close()
	j.cfg.Timeout = 50 * time.Millisecond
	require.ErrorIs(t, j.Barrier(context.Background(), "b"), ErrTimeout)

	_, err = Join(context.Background(), Config{Size: 2, Root: "unix:" + filepath.Join(t.TempDir(), "none"), Timeout: 50 * time.Millisecond})
	require.ErrorIs(t, err, ErrTimeout)
	require.ErrorContains(t, err, "rank 0 of 2: join")
}

// A rank may come before the server.
func TestServerComesLate(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	var g errgroup.Group
	g.Go(func() error {
		j, err := Join(t.Context(), Config{Size: 1, Root: "unix:" + path, Timeout: testutil.Limit})
		if err == nil {
			err = j.Close()
		}
		return err
	})
	time.Sleep(20 * time.Millisecond) // sleep: lets the first tries fail; passes without as well
	ln, err := net.Listen("unix", path)
	require.NoError(t, err)
	s, err := Serve(t.Context(), ln, ServerConfig{Size: 1})
	require.NoError(t, err)
	defer s.Close()
	require.NoError(t, g.Wait())
	<-s.Finished()
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	_, root := serve(t, "unix", 2)
	j := join(t, root, 0, 2)
	try := func(c Config) error {
		c.Root, c.Timeout = root, testutil.Limit
		_, err := Join(t.Context(), c)
		return err
	}
	require.ErrorIs(t, try(Config{Rank: 1, Size: 2, Token: []byte("guess")}), ErrToken)
	require.ErrorIs(t, try(Config{Rank: 1, Size: 2}), ErrToken)
	err := try(Config{Rank: 1, Size: 3, Token: testToken})
	require.ErrorIs(t, err, ErrSize)
	require.ErrorContains(t, err, "the server's job has 2 ranks, rank 1 was started with 3")
	require.ErrorIs(t, try(Config{Rank: 0, Size: 2, Token: testToken}), ErrDuplicateRank)
	require.ErrorIs(t, try(Config{Rank: 2, Size: 2, Token: testToken}), ErrRank)
	// None of that disturbed the job.
	j1 := join(t, root, 1, 2)
	require.NoError(t, each([]*Job{j, j1}, func(j *Job) error { return j.Barrier(t.Context(), "b") }))
	require.NoError(t, j1.Close())
	require.ErrorIs(t, try(Config{Rank: 1, Size: 2, Token: testToken}), ErrDuplicateRank)
}

// A server that does not know the token must not be believed.
func TestImpostorServer(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]message{
		"wrong mac":     {typ: msgWelcome, mac: seq32(1)},
		"other version": {typ: msgHello},
		"nonsense":      {typ: msgLeave},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ln, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
			require.NoError(t, err)
			defer ln.Close()
			go func() {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				defer c.Close()
				hello := message{typ: msgHello, version: Version}
				if name == "other version" {
					hello.version = Version + 1
				}
				c.Write(hello.append(nil))
				readFrame(c, maxHandshake)
				c.Write(answer.append(nil))
			}()
			_, err = Join(t.Context(), Config{Root: "unix:" + ln.Addr().String(), Token: testToken, Timeout: testutil.Limit})
			want := map[string]error{"wrong mac": ErrToken, "other version": ErrVersion, "nonsense": ErrProtocol}[name]
			require.ErrorIs(t, err, want)
		})
	}
}

// Who waits for a rank that dies is told at once, and so is who asks later.
func TestDeathIsReported(t *testing.T) {
	t.Parallel()
	_, root := serve(t, "unix", 3)
	js := joinAll(t, root, 3)
	require.NoError(t, js[2].Put(t.Context(), "early", []byte("v")))
	var wg sync.WaitGroup
	errs := make([]error, 4)
	wg.Go(func() { _, errs[0] = js[0].Get(t.Context(), 2, "never") })
	wg.Go(func() { errs[1] = js[0].Barrier(t.Context(), "b") })
	wg.Go(func() { errs[2] = js[1].Barrier(t.Context(), "b") })
	wg.Go(func() { _, errs[3] = js[1].Get(t.Context(), 2, "never") })
	told := make(chan int, 2)
	js[0].NotifyGone(func(rank int, why string) { told <- rank })
	js[2].conn.Close() // as the kernel does for a process that died
	wg.Wait()
	for i, err := range errs {
		var pe *PeerGoneError
		require.ErrorAs(t, err, &pe, "waiter %d", i)
		require.ErrorIs(t, err, ErrPeerGone)
		require.Equal(t, []int{2}, pe.Ranks)
		require.ErrorContains(t, err, "rank 2 gone (its process ended without leaving the job)")
	}
	<-js[0].Gone(2)
	require.Equal(t, 2, <-told)
	js[0].NotifyGone(func(rank int, why string) { told <- rank }) // told of the past as well
	require.Equal(t, 2, <-told)
	require.NotEmpty(t, js[0].GoneReason(2))
	require.Empty(t, js[0].GoneReason(1))
	_, err := js[0].Get(t.Context(), 2, "never")
	require.ErrorIs(t, err, ErrPeerGone)
	require.ErrorIs(t, js[0].Barrier(t.Context(), "later"), ErrPeerGone)
	v, err := js[0].Get(t.Context(), 2, "early")
	require.NoError(t, err)
	require.Equal(t, "v", string(v))
	require.NoError(t, js[0].Err(), "the job goes on")
	_, err = js[1].AllGather(t.Context(), "later still", nil)
	require.ErrorIs(t, err, ErrPeerGone)
}

func TestLauncherReportsALostRank(t *testing.T) {
	t.Parallel()
	srv, root := serve(t, "unix", 2)
	j := join(t, root, 0, 2)
	var err error
	var wg sync.WaitGroup
	wg.Go(func() { err = j.Barrier(t.Context(), "b") })
	srv.Lost(1, "exit code 3") // before it ever joined
	wg.Wait()
	require.EqualError(t, err, `wireup: barrier "b": rank 1 gone (exit code 3)`)
	_, err = Join(t.Context(), Config{Rank: 1, Size: 2, Root: root, Token: testToken})
	require.ErrorIs(t, err, ErrDuplicateRank)
	require.NoError(t, j.Close())
	<-srv.Finished()
}

func TestAbort(t *testing.T) {
	t.Parallel()
	srv, root := serve(t, "tcp", 3)
	js := joinAll(t, root, 3)
	var err error
	var wg sync.WaitGroup
	wg.Go(func() { err = js[1].Barrier(t.Context(), "b") })
	js[2].Abort("out of memory")
	wg.Wait()
	for _, j := range js {
		<-j.Done()
		var ae *AbortError
		require.ErrorAs(t, j.Err(), &ae)
		require.Equal(t, AbortError{Rank: 2, Reason: "out of memory"}, *ae)
	}
	require.ErrorIs(t, err, ErrAborted)
	<-srv.Done()
	require.EqualError(t, srv.Err(), "job aborted by rank 2: out of memory")

	srv, root = serve(t, "tcp", 2)
	j := join(t, root, 0, 2)
	srv.Abort("interrupted")
	<-j.Done()
	require.EqualError(t, j.Err(), "job aborted by the launcher: interrupted")
	late := join(t, root, 1, 2)
	<-late.Done()
	require.EqualError(t, late.Err(), "job aborted by the launcher: interrupted", "as all others are told")
}

func TestServerGone(t *testing.T) {
	t.Parallel()
	srv, root := serve(t, "unix", 2)
	j := join(t, root, 0, 2)
	var err error
	var wg sync.WaitGroup
	wg.Go(func() { err = j.Barrier(t.Context(), "b") })
	srv.Close()
	wg.Wait()
	require.ErrorIs(t, err, ErrServerGone)
	<-j.Done()
	require.ErrorIs(t, j.Err(), ErrServerGone)
	require.ErrorIs(t, srv.Err(), ErrClosed)
}

func TestServerEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	s, err := Serve(ctx, ln, ServerConfig{Size: 1, Token: testToken})
	require.NoError(t, err)
	cancel()
	<-s.Done()
	require.NoError(t, s.Close())
	_, err = Serve(t.Context(), ln, ServerConfig{})
	require.ErrorIs(t, err, ErrSize)
}

// Sixty-four ranks on however few processors: seconds, not minutes.
func TestManyRanks(t *testing.T) {
	t.Parallel()
	const n = 64
	_, root := serve(t, "unix", n)
	ctx, cancel := context.WithTimeout(t.Context(), testutil.Limit)
	defer cancel()
	js := joinAll(t, root, n)
	require.NoError(t, each(js, func(j *Job) error {
		for range 5 {
			if err := j.Barrier(ctx, "b"); err != nil {
				return err
			}
		}
		return nil
	}))
}
