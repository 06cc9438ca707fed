package coll

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/internal/jobtest"
	"github.com/seed33544411/rma/internal/onesided"
	"github.com/seed33544411/rma/internal/testutil"
)

// writerElements are so many that half of them, which the root of a bcast writes, take some time.
const writerElements = sharedMax / 8

// writerConfig is the configuration of a rank of a job of two.
func writerConfig(rank int, root string) *rma.Config {
	return &rma.Config{
		Job: &rma.Job{Rank: rank, Size: 2, Root: root, Token: jobtest.Token}, Fabric: "shm", Sampling: "off",
		SetupTimeout: testutil.Limit, PeerTimeout: testutil.Limit, HangTimeout: time.Hour,
	}
}

// writingWorld returns the team of all ranks, of which this one writes to the memory of the others.
func writingWorld(ctx context.Context, e *rma.Engine) (*Team, error) {
	team, err := World(e)
	if err == nil {
		err = settled(ctx, team, bySingle)
	}
	if err == nil {
		believeApart(team)
	}
	return team, err
}

// writerChild is rank 1, which broadcasts without end. Its argument is the job's root.
var writerChild = testutil.NewChild("writer", func(args []string, in *bufio.Reader, _ io.Writer) error {
	ctx := context.Background()
	e, err := rma.Open(ctx, writerConfig(1, args[0]))
	if err != nil {
		return err
	}
	team, err := writingWorld(ctx, e)
	for buf := make([]int64, writerElements); err == nil; {
		err = Bcast(ctx, team, 1, buf)
	}
	_, _ = io.Copy(io.Discard, in)
	_ = e.Close() // the other rank may have ended
	return nil
})

// writes reports whether rank 1 is writing to memory of this rank.
func (b *board) writes() bool {
	for flag := range uint64(boardOps) {
		if onesided.Load64(b.came[b.area.lineOf(1, flag)+writingAt:]) != 0 {
			return true
		}
	}
	return false
}

// A call that is given up while a process was stopped in the middle of a write to its memory returns, and says so; the
// memory is free when that process has finished, or has ended. Who closes the engine before does not learn it.
func TestStoppedInTheMiddleOfAWrite(t *testing.T) {
	for name, end := range map[string]struct {
		do   func(e *rma.Engine, writer *testutil.Proc) error
		want error
	}{
		"goes on": {func(_ *rma.Engine, writer *testutil.Proc) error { writer.Continue(); return nil }, nil},
		"ends":    {func(_ *rma.Engine, writer *testutil.Proc) error { writer.Kill(); return nil }, nil},
		"closed":  {func(e *rma.Engine, _ *testutil.Proc) error { return e.Close() }, rma.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := testutil.Context(t, testutil.Limit)
			root := jobtest.Serve(t, 2)
			writer := writerChild.Start(t, root)
			e, err := rma.Open(ctx, writerConfig(0, root))
			require.NoError(t, err)
			defer e.Close()
			team, err := writingWorld(ctx, e)
			require.NoError(t, err)

			call, giveUp := context.WithCancel(ctx)
			failed := make(chan error, 1)
			go func() {
				var err error
				for buf := make([]int64, writerElements); err == nil; {
					err = Bcast(call, team, 1, buf)
				}
				failed <- err
			}()
			b := team.t.board
			for tries := 1; ; tries++ {
				for k := 0; !b.writes(); k++ {
					require.NoError(t, ctx.Err(), "in %d tries", tries)
					if k%1000 == 0 {
						runtime.Gosched()
					}
				}
				if writer.Stop(t); b.writes() {
					break
				}
				writer.Continue()
			}
			giveUp()
			err = <-failed
			var inUse *InUseError
			require.ErrorAs(t, err, &inUse)
			require.ErrorIs(t, err, rma.ErrInUse)
			require.ErrorIs(t, err, rma.ErrGivenUp)
			require.ErrorIs(t, err, context.Canceled)
			require.Equal(t, 1, inUse.Rank)
			require.ErrorIs(t, inUse.Wait(call), context.Canceled)
			require.True(t, b.writes())
			require.NoError(t, end.do(e, writer))
			require.ErrorIs(t, inUse.Wait(ctx), end.want)
			writer.Continue()
		})
	}
}

// The same of calls in the middle of which startFast finds that their team ends, and of teams that are closed meanwhile.
func TestHeld(t *testing.T) {
	for name, first := range map[string]bool{"the team has ended": false, "the team ends": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := testutil.Context(t, testutil.Limit)
			es := job(t, 2, "shm")
			worlds(t, es)
			made := make([]*Team, 2)
			each(t, worlds(t, es), func(r int, _ *Team) (err error) {
				made[r], err = New(ctx, es[r], []int{0, 1}, "pair")
				return err
			})
			each(t, made, func(_ int, team *Team) error { return settled(ctx, team, bySingle) })
			c := made[1].t
			b, o := c.board, newOperation(c)
			o.bufs = [][]byte{nil, make([]byte, 8)}
			b.mu.Lock()
			b.patience, b.exposed = 0, b.last+1
			word := b.came[b.area.lineOf(0, b.exposed)+writingAt:]
			onesided.Store64(word, 1) // as if rank 0 were writing
			b.mu.Unlock()
			if !first {
				c.revoke(rma.ErrGivenUp)
			}
			var inUse *InUseError
			require.ErrorAs(t, stop(b, o, true), &inUse)
			require.Equal(t, fmt.Sprintf("rank 0 may be accessing the memory of the call: %v", rma.ErrInUse), inUse.Error())
			require.NoError(t, made[1].Close())
			select {
			case <-inUse.over:
				t.Fatal("the memory is free")
			default:
			}
			testutil.Holding(&c.s.mu, func() { require.Same(t, c, c.s.teams[c.number]) })
			testutil.Holding(&b.mu, func() { require.Len(t, inUse.mem, 2) })
			onesided.Store64(word, 0)
			require.NoError(t, inUse.Wait(ctx))
			gone := func() bool { c.s.mu.Lock(); defer c.s.mu.Unlock(); return c.s.teams[c.number] != c }
			testutil.Eventually(t, testutil.Limit, gone, "the end of the team")
			require.NoError(t, stop(b, o, true))
		})
	}
}

// A rank takes back what it has told while another one, which waits for that, fails, before the
// engine of the latter has seen that it is to look for nothing. The memory is released when the
// team is closed.
func TestBothFail(t *testing.T) {
	t.Parallel()
	ctx := testutil.Context(t, testutil.Limit)
	es := job(t, 2, "shm")
	worlds(t, es)
	made := make([]*Team, 2)
	each(t, made, func(r int, _ *Team) (err error) {
		made[r], err = New(ctx, es[r], []int{0, 1}, "pair")
		return err
	})
	each(t, made, func(_ int, team *Team) error { return settled(ctx, team, bySingle) })
	c := made[1].t
	b := c.board
	waits := StartBcast(made[1], 0, make([]int64, writerElements))
	flag := uint64(0)
	testutil.Eventually(t, testutil.Limit, func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		flag = b.last
		return b.awaiting == b.area.lineOf(0, flag)+tellSize-8
	}, "the engine looks for what rank 0 tells")
	failed := make(chan struct{})
	es[1].Peer(1).SendFunc(1, nil, func(error) { // meanwhile the engine does nothing else
		defer close(failed)
		other := made[0].t.board
		other.mu.Lock() // so that it keeps its memory
		defer other.mu.Unlock()
		c.revoke(rma.ErrGivenUp)
		other.exposed = flag
		other.withdraw()
	})
	_, err := es[1].Peer(1).RecvTag(1, nil).Wait(ctx)
	require.NoError(t, err)
	<-failed
	require.ErrorIs(t, waits.Wait(ctx), rma.ErrGivenUp)
	require.NoError(t, made[1].Close())
	testutil.Eventually(t, testutil.Limit, b.released.Load, "the memory to be released")
}
