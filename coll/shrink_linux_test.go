package coll

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

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/internal/jobtest"
	"github.com/seed33544411/rma/internal/testutil"
)

// stoppedConfig is the configuration of a rank of a job of three, which takes others for hung after a time that is
// long for a busy machine.
func stoppedConfig(rank int, root string, fabric rma.Fabric) *rma.Config {
	return &rma.Config{
		Job: &rma.Job{Rank: rank, Size: 3, Root: root, Token: jobtest.Token}, Fabric: fabric, Sampling: "off",
		SetupTimeout: testutil.Limit, PeerTimeout: testutil.Limit, HangTimeout: testutil.Patience(4 * time.Second),
	}
}

// stoppedChild is rank 2, which is stopped after its first line, and shrinks the world when it goes on. Its arguments
// are the job's root and the link.
var stoppedChild = testutil.NewChild("stopped", func(args []string, in *bufio.Reader, out io.Writer) error {
	ctx, cancel := context.WithTimeout(context.Background(), testutil.Limit)
	defer cancel()
	e, err := rma.Open(ctx, stoppedConfig(2, args[0], rma.Fabric(args[1])))
	if err != nil {
		return err
	}
	world, err := World(e)
	if err != nil {
		return err
	}
	if err := Barrier(ctx, world); err != nil {
		return err
	}
	fmt.Fprintln(out, "met")
	if _, err := in.ReadString('\n'); err != nil {
		return err
	}
	if err = Barrier(ctx, world); !errors.Is(err, ErrRevoked) {
		return fmt.Errorf("barrier: %w", err)
	}
	rest, err := world.Shrink(ctx)
	if err != nil {
		return fmt.Errorf("shrink: %w", err)
	}
	fmt.Fprintln(out, rest.t.ranks)
	_, _ = io.Copy(io.Discard, in)
	_ = e.Close() // the others have lost this rank
	return nil
})

// A process that is stopped for longer than HangTimeout is lost for the others, which go on without it; when it goes on, it
// finds that it has lost them, and does not disturb them.
func TestShrinkStopped(t *testing.T) {
	for _, fabric := range []rma.Fabric{rma.FabricSHM, rma.FabricTCP} {
		t.Run(string(fabric), func(t *testing.T) {
			t.Parallel()
			ctx := testutil.Context(t, testutil.Limit)
			root := jobtest.Serve(t, 3)
			child := stoppedChild.Start(t, root, string(fabric))
			var es [2]*rma.Engine
			var g errgroup.Group
			for r := range es {
				g.Go(func() (err error) {
					es[r], err = rma.Open(ctx, stoppedConfig(r, root, fabric))
					return err
				})
			}
			require.NoError(t, g.Wait())
			ts := worlds(t, es[:])
			each(t, ts, func(_ int, world *Team) error { return Barrier(ctx, world) })
			require.Equal(t, "met", child.Line(t, testutil.Limit))
			child.Stop(t)
			rests := make([]*Team, len(ts))
			each(t, ts, func(r int, world *Team) error {
				err := Barrier(ctx, world)
				if !errors.Is(err, ErrRevoked) || !errors.Is(err, rma.ErrPeerHung) {
					return fmt.Errorf("barrier: %w", err)
				}
				if rests[r], err = world.Shrink(ctx); err != nil {
					return fmt.Errorf("shrink: %w", err)
				}
				return conform(ctx, rests[r], 0, 5, 1)
			})
			child.Continue()
			_, err := io.WriteString(child.In, "go on\n")
			require.NoError(t, err)
			require.Equal(t, "[2]", child.Line(t, testutil.Limit))
			each(t, rests, func(_ int, rest *Team) error {
				if rest.Size() != 2 {
					return fmt.Errorf("team of %v", rest.t.ranks)
				}
				return conform(ctx, rest, 0, 5, 2)
			})
			require.NoError(t, child.In.Close())
			require.NoError(t, child.Wait(testutil.Limit))
			for _, e := range es {
				require.NoError(t, e.Close())
			}
		})
	}
}
