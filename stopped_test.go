//go:build unix

package rma

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/seed33544411/rma/internal/testutil"
)

// second is rank 1 of 2 in a process of its own. It executes commands, lines of in, and
// writes their results to out.
var second = testutil.NewChild("second", func(args []string, in *bufio.Reader, out io.Writer) error {
	hang, err := time.ParseDuration(args[3])
	if err != nil {
		return err
	}
	ctx := context.Background()
	e, err := Open(ctx, &Config{
		Job:    &Job{Rank: 1, Size: 2, Root: args[1], Token: []byte(args[2])},
		Fabric: Fabric(args[0]), Sampling: "off", HangTimeout: hang, PeerTimeout: time.Second,
	})
	if err != nil {
		return err
	}
	mem, keys, err := meetSecond(ctx, e)
	for err == nil {
		fmt.Fprintln(out, "ready")
		var line string
		if line, err = in.ReadString('\n'); err != nil {
			break
		}
		switch line {
		case "wait\n": // for a signal of the other rank
			_, err = e.Peer(0).WaitSignal(ctx, mem.Slice(128, 8), EQ, 7)
		case "signal\n":
			err = e.Peer(0).Signal(keys[0].At(128), SignalSet, 7).Wait(ctx)
		case "exchange\n": // messages until the other rank is gone
			err = swap(ctx, e.Peer(0), mem.Slice(0, 8<<20), mem.Slice(8<<20, 8<<20), nil)
		case "exchange private\n":
			err = swapPrivate(ctx, e.Peer(0), nil)
		case "reset\n": // once an operation has found that the connection is lost
			lost := until(ctx, func() error { return e.Peer(0).Put(keys[0].At(8), mem.Slice(8, 8)).Wait(ctx) })
			fmt.Fprintln(out, lost)
			err = e.Peer(0).Reset(ctx)
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return errors.Join(err, e.Close())
})

// meetSecond exchanges keys of 16 MiB and uses every way between the two once.
func meetSecond(ctx context.Context, e *Engine) (*Region, []Key, error) {
	mem, err := e.Alloc(16 << 20)
	if err != nil {
		return nil, nil, err
	}
	keys, err := AllGatherKeys(ctx, e, mem)
	if err != nil {
		return nil, nil, err
	}
	return mem, keys, greet(ctx, e, mem, keys[1-e.Rank()])
}

// swap sends and receives large messages, which both ends copy, until an operation fails. It calls
// done after each.
func swap(ctx context.Context, p *Peer, out, in Buffer, done func()) error {
	return swapEach(ctx, func() (RecvRequest, Request) { return p.RecvBuffer(3, in), p.SendBuffer(3, out) }, done)
}

// swapPrivate is swap with memory that peers do not map.
func swapPrivate(ctx context.Context, p *Peer, done func()) error {
	out, in := make([]byte, 8<<20), make([]byte, 8<<20)
	return swapEach(ctx, func() (RecvRequest, Request) { return p.RecvTag(3, in), p.SendTag(3, out) }, done)
}

// swapEach starts a receive and a send, again and again until one fails. It calls done, which may be
// nil, after each pair.
func swapEach(ctx context.Context, start func() (RecvRequest, Request), done func()) error {
	for {
		got, sent := start()
		if _, err := got.Wait(ctx); err != nil {
			return errors.Join(err, sent.Wait(ctx))
		}
		if err := sent.Wait(ctx); err != nil {
			return err
		}
		if done != nil {
			done()
		}
	}
}

// withSecond starts the second rank, and returns the first, with memory of both.
func withSecond(t *testing.T, fabric string, hang time.Duration) (*Engine, *testutil.Proc, *Region, []Key) {
	config := rendezvous(t, 2, fabric)
	c := config(0)
	c.Sampling, c.HangTimeout = "off", hang
	p := second.Start(t, fabric, c.Job.Root, string(c.Job.Token), hang.String())
	ctx := testutil.Context(t, testutil.Limit)
	e, err := Open(ctx, c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	mem, keys, err := meetSecond(ctx, e)
	require.NoError(t, err)
	require.Equal(t, "ready", p.Line(t, testutil.Limit))
	return e, p, mem, keys
}

func say(t *testing.T, p *testutil.Proc, what string) {
	_, err := fmt.Fprintln(p.In, what)
	require.NoError(t, err)
}

// Every operation detects a stopped process, also in the middle of a large transfer, and
// none before HangTimeout, although the link's own time-out is shorter.
func TestStoppedProcess(t *testing.T) {
	t.Parallel()
	hang := testutil.Patience(4 * time.Second)
	onEach(t, func(t *testing.T, fabric string) {
		e, second, mem, keys := withSecond(t, fabric, hang)
		ctx, p := testutil.Context(t, testutil.Limit), e.Peer(1)
		private := make([]byte, 16<<20)
		ops := operations(e, p, mem, keys[1])
		for name, begin := range map[string]func() Request{
			"16 MiB put":       func() Request { return p.Put(keys[1].At(0), mem.Slice(0, len(private))) },
			"16 MiB of bytes":  func() Request { return p.PutBytes(keys[1].At(0), private) },
			"16 MiB get":       func() Request { return p.Get(mem.Slice(0, len(private)), keys[1].At(0)) },
			"16 MiB of a send": func() Request { return p.Send(private) },
		} {
			ops[name] = func(ctx context.Context) error {
				return until(ctx, func() error { return begin().Wait(ctx) })
			}
		}
		var g errgroup.Group
		begun := time.Now()
		under := make(chan struct{}, len(ops))
		for name, op := range ops {
			g.Go(func() error {
				under <- struct{}{}
				err := op(ctx)
				if took := time.Since(begun); !errors.Is(err, ErrPeerHung) || errors.Is(err, ErrPeerGone) {
					t.Errorf("%s, after %v: %v", name, took, err)
				}
				return nil
			})
		}
		for range ops {
			<-under
		}
		stopped := time.Now()
		second.Stop(t)
		require.NoError(t, g.Wait())
		t.Logf("%v after the stop, with HangTimeout %v", time.Since(stopped), hang)
		second.Continue()
	})
}

// A process that resumes in time has lost nothing, and its peers have lost nothing either.
func TestStoppedProcessThatGoesOn(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, fabric string) {
		e, second, mem, keys := withSecond(t, fabric, time.Minute)
		ctx, p := testutil.Context(t, testutil.Limit), e.Peer(1)
		second.Stop(t)
		begin := time.Now()
		private := testutil.Payload(16<<20, 3, 0)
		put := p.PutBytes(keys[1].At(0), private)
		get := p.Get(mem.Slice(64, 8), keys[1].At(0))
		for time.Since(begin) < 4*time.Second { // longer than links, which know nothing, used to wait
			time.Sleep(100 * time.Millisecond) // sleep: the time in which nothing must happen
		}
		second.Continue()
		require.NoError(t, put.Wait(ctx))
		require.NoError(t, get.Wait(ctx))
		back := make([]byte, len(private))
		require.NoError(t, p.GetBytes(back, keys[1].At(0)).Wait(ctx))
		require.NoError(t, testutil.Verify(back, 3, 0))
		say(t, second, "signal")
		_, err := p.WaitSignal(ctx, mem.Slice(128, 8), EQ, 7)
		require.NoError(t, err)
		require.Equal(t, "ready", second.Line(t, testutil.Limit))
	})
}

// A process that was stopped for longer than its peer's HangTimeout finds the connection closed when it
// resumes, and makes another one.
func TestStoppedProcessConnectsAgain(t *testing.T) {
	t.Parallel()
	hang := testutil.Patience(2 * time.Second) // ranks that are not stopped are starved for less
	onEach(t, func(t *testing.T, fabric string) {
		e, second, mem, keys := withSecond(t, fabric, hang)
		ctx, p := testutil.Context(t, testutil.Limit), e.Peer(1)
		get := func() error { return p.Get(mem.Slice(64, 8), keys[1].At(0)).Wait(ctx) }
		for range testutil.Times(2) {
			second.Stop(t)
			require.ErrorIs(t, until(ctx, get), ErrPeerHung)
			second.Continue()
			say(t, second, "reset")
			t.Log(second.Line(t, testutil.Limit))
			require.Equal(t, "ready", second.Line(t, testutil.Limit))
			require.NoError(t, get())
		}
	})
}

// A process that was itself stopped for several HangTimeouts takes no peer for hung when it
// resumes, because it has not checked them meanwhile.
func TestStoppedProcessJudgesNobody(t *testing.T) {
	t.Parallel()
	hang := testutil.Patience(3 * time.Second) // ranks that are not stopped are starved for less
	onEach(t, func(t *testing.T, fabric string) {
		config := rendezvous(t, 2, fabric)
		c := config(0)
		c.Sampling, c.HangTimeout = "off", time.Hour // this side does not mind
		second := second.Start(t, fabric, c.Job.Root, string(c.Job.Token), hang.String())
		ctx := testutil.Context(t, testutil.Limit)
		e, err := Open(ctx, c)
		require.NoError(t, err)
		defer func() { require.NoError(t, e.Close()) }()
		e.prog.Do(func() { e.proto.heart.every = hang / hangBeats }) // but shows that it lives as often as the other
		e.tasks.Go(func() {})                                        // what connects the two begins after this
		_, keys, err := meetSecond(ctx, e)
		require.NoError(t, err)
		require.Equal(t, "ready", second.Line(t, testutil.Limit))
		for range testutil.Times(2) {
			say(t, second, "wait")
			time.Sleep(hang) // sleep: it looks at this rank
			second.Stop(t)
			time.Sleep(3 * hang) // sleep: the time in which it does not look
			second.Continue()
			time.Sleep(hang / 2) // sleep: a wrong verdict would be made by now
			require.NoError(t, e.Peer(1).Signal(keys[1].At(128), SignalSet, 7).Wait(ctx))
			require.Equal(t, "ready", second.Line(t, testutil.Limit))
			require.NoError(t, e.Peer(1).Signal(keys[1].At(128), SignalSet, 0).Wait(ctx))
		}
	})
}

// sendToStopped opens rank 0 of a job, with a PeerTimeout (0: the default), and returns it
// when a send to rank 1, a stopped process, is complete.
func sendToStopped(t *testing.T, peerTimeout time.Duration) (*Engine, *testutil.Proc) {
	c := rendezvous(t, 2, "tcp")(0)
	c.Sampling, c.HangTimeout, c.PeerTimeout = "off", time.Hour, peerTimeout
	p := second.Start(t, "tcp", c.Job.Root, string(c.Job.Token), "1h")
	ctx := testutil.Context(t, testutil.Limit)
	e, err := Open(ctx, c)
	require.NoError(t, err)
	t.Cleanup(func() { e.Close() })
	_, _, err = meetSecond(ctx, e)
	require.NoError(t, err)
	require.Equal(t, "ready", p.Line(t, testutil.Limit))
	p.Stop(t)
	require.NoError(t, e.Peer(1).Send([]byte("not seen yet")).Wait(ctx))
	return e, p
}

// Close reports a peer that does not acknowledge messages whose sends are complete.
func TestCloseBesideStoppedProcess(t *testing.T) {
	t.Parallel()
	e, second := sendToStopped(t, 0)
	err := e.Close()
	second.Continue()
	require.ErrorIs(t, err, ErrUnconfirmed)
	var peer *PeerError
	require.ErrorAs(t, err, &peer)
	require.Equal(t, 1, peer.Rank)
}

// Close waits for a peer that is silent for less than PeerTimeout.
func TestCloseWaitsForPeerTimeout(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes longer than Close waits by default")
	}
	e, second := sendToStopped(t, testutil.Limit)
	closed := make(chan error, 1)
	go func() { closed <- e.Close() }()
	select {
	case err := <-closed:
		t.Fatalf("Close gave up early: %v", err)
	case <-time.After(closeTime + time.Second): // deadline: of Close, which is over
	}
	second.Continue()
	require.NoError(t, <-closed)
}
