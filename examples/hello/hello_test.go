//go:build unix

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/launch/launchtest"
	"github.com/seed33544411/rma/internal/testutil"
)

var roles = map[string]launchtest.Role{"hello": hello, "compute": compute, "death": death}

func TestMain(m *testing.M) { launchtest.Main(m, roles) }

// job runs n processes in the role and returns their output.
func job(t *testing.T, n int, fabric, role, wireup string) (string, int, error) {
	return launchtest.Job{N: n, Fabric: fabric, Role: role, Wireup: wireup, Sampling: "cached"}.Run(t)
}

func TestHello(t *testing.T) {
	for _, c := range []struct {
		n      int
		fabric string
		link   string
		wireup string
	}{{2, "", "shm", "unix"}, {2, "shm", "shm", "tcp"}, {2, "tcp", "tcp", "unix"}, {5, "tcp", "tcp", "tcp"}, {2, "verbs", "ibv", "unix"}, {1, "", "shm", "unix"}} {
		t.Run(fmt.Sprintf("%d ranks %s", c.n, c.fabric), func(t *testing.T) {
			launchtest.Parallel(t, c.link)
			out, _, err := job(t, c.n, c.fabric, "hello", c.wireup)
			require.NoError(t, err, out)
			for r := range c.n {
				from := (r + c.n - 1) % c.n
				require.Contains(t, out, fmt.Sprintf("[%d] rank %d got \"hello from rank %d of %d\" over %s\n", r, r, from, c.n, c.link))
			}
		})
	}
}

// compute is a job whose rank 1 computes without any call of the engine, while
// rank 0 reads, writes and counts in its memory.
func compute(ctx context.Context) error {
	eng, err := rma.Open(ctx, nil)
	if err != nil {
		return err
	}
	defer eng.Close()
	mem, err := eng.Alloc(1 << 16)
	if err != nil {
		return err
	}
	keys, err := rma.AllGatherKeys(ctx, eng, mem)
	if err != nil {
		return err
	}
	if eng.Rank() == 1 {
		last := mem.Bytes()[1<<16-8:]
		for x := uint64(1); binary.NativeEndian.Uint64(last) != 100; {
			for range 1 << 12 {
				x = x*6364136223846793005 + 1
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if x == 0 {
				fmt.Println("never")
			}
		}
		return eng.Barrier(ctx)
	}
	p := eng.Peer(1)
	for i := range 100 {
		n := 1 + i*50
		testutil.Fill(mem.Bytes()[:n], uint64(i), 0)
		if err := p.Put(keys[1].At(16), mem.Slice(0, n)).Wait(ctx); err != nil {
			return err
		}
		if err := p.Get(mem.Slice(30_000, n), keys[1].At(16)).Wait(ctx); err != nil {
			return err
		}
		if err := testutil.Verify(mem.Bytes()[30_000:30_000+n], uint64(i), 0); err != nil {
			return err
		}
		v, err := p.FetchAdd(keys[1].At(1<<16-8), 1).Wait(ctx)
		if err != nil || v != uint64(i) {
			return fmt.Errorf("fetch-add %d: %d, %w", i, v, err)
		}
	}
	return eng.Barrier(ctx)
}

func TestTargetOnlyComputes(t *testing.T) {
	for _, fabric := range []string{"shm", "tcp", "ibv"} {
		t.Run(fabric, func(t *testing.T) {
			launchtest.Parallel(t, fabric)
			out, _, err := job(t, 2, fabric, "compute", "unix")
			require.NoError(t, err, out)
		})
	}
}

// death is a job whose rank 1 kills itself while rank 0 and 2 write to it; they
// must get a typed error soon, go on with each other, and end well.
func death(ctx context.Context) error {
	eng, err := rma.Open(ctx, nil)
	if err != nil {
		return err
	}
	defer eng.Close()
	mem, err := eng.Alloc(4096)
	if err != nil {
		return err
	}
	keys, err := rma.AllGatherKeys(ctx, eng, mem)
	if err != nil {
		return err
	}
	if eng.Rank() == 1 {
		for binary.NativeEndian.Uint64(mem.Bytes()) == 0 || binary.NativeEndian.Uint64(mem.Bytes()[8:]) == 0 {
			eng.Progress()
		}
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	// The launcher ends the others by SIGTERM when one dies: they look first.
	signal.Ignore(syscall.SIGTERM)
	cell := keys[1].At(eng.Rank() / 2 * 8)
	for start := time.Now(); ; {
		_, err := eng.Peer(1).FetchAdd(cell, 1).Wait(ctx)
		if err == nil {
			start = time.Now()
			continue
		}
		var pe *rma.PeerError
		if !errors.As(err, &pe) || pe.Rank != 1 {
			return fmt.Errorf("unexpected error: %w", err)
		}
		if errors.Is(err, rma.ErrPeerGone) {
			break
		}
		// A device may refuse access to the memory of a process that is being
		// killed, before the news of it is here.
		if !errors.Is(err, rma.ErrRemoteAccess) {
			return fmt.Errorf("unexpected error: %w", err)
		}
		if took := time.Since(start); took > testutil.Limit {
			return fmt.Errorf("not told for %v that the peer is gone: %w", took, err)
		}
		cpu.Yield()
	}
	other := 2 - eng.Rank()
	if _, err := eng.Peer(other).FetchAdd(keys[other].At(64), 1).Wait(ctx); err != nil && !errors.Is(err, rma.ErrPeerGone) {
		return err // it may have ended by now
	}
	for mine := mem.Bytes()[64:]; binary.NativeEndian.Uint64(mine) == 0; { // not before the other has been here
		eng.Progress()
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	fmt.Println("survived")
	return nil
}

func TestDeathOfAPeer(t *testing.T) {
	for _, fabric := range []string{"shm", "tcp", "ibv"} {
		t.Run(fabric, func(t *testing.T) {
			launchtest.Parallel(t, fabric)
			out, code, err := job(t, 3, fabric, "death", "unix")
			require.Equal(t, 137, code, out)
			require.ErrorContains(t, err, "rank 1 ")
			require.Contains(t, out, "[0] survived\n")
			require.Contains(t, out, "[2] survived\n")
		})
	}
}
