//go:build unix

package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/internal/launch/launchtest"
)

func init() {
	roles["neighbour"] = func(ctx context.Context) error { return scale(ctx, 1) }
	roles["everybody"] = func(ctx context.Context) error { return scale(ctx, 1<<16) }
}

// scale is a job in which every rank writes to that many ranks behind it, counts
// there, and says what it has connected.
func scale(ctx context.Context, reach int) error {
	eng, err := rma.Open(ctx, nil)
	if err != nil {
		return err
	}
	defer eng.Close()
	me, n := eng.Rank(), eng.Size()
	mem, err := eng.Alloc(8 + 8*n)
	if err != nil {
		return err
	}
	keys, err := rma.AllGatherKeys(ctx, eng, mem)
	if err != nil {
		return err
	}
	reach = min(reach, n-1)
	binary.NativeEndian.PutUint64(mem.Bytes()[8+8*me:], uint64(1000+me))
	var reqs []rma.Request
	for i := 1; i <= reach; i++ {
		to := (me + i) % n
		reqs = append(reqs, eng.Peer(to).Put(keys[to].At(8+8*me), mem.Slice(8+8*me, 8)))
	}
	if err := rma.WaitAll(ctx, reqs...); err != nil {
		return err
	}
	if err := eng.Barrier(ctx); err != nil {
		return err
	}
	for i := 1; i <= reach; i++ {
		from := (me + n - i) % n
		if v := binary.NativeEndian.Uint64(mem.Bytes()[8+8*from:]); v != uint64(1000+from) {
			return fmt.Errorf("rank %d has %d of rank %d", me, v, from)
		}
	}
	// The puts of a neighbour may be here before this side of the connection is done
	// with setting up.
	for want := min(2*reach, n-1); eng.Stats().PeersConnected < want && ctx.Err() == nil; {
		eng.Progress()
		runtime.Gosched()
	}
	fds, _ := os.ReadDir("/proc/self/fd")
	fmt.Printf("connected %d descriptors %d resident %s\n", eng.Stats().PeersConnected, len(fds), resident())
	return eng.Barrier(ctx)
}

// resident is the process's resident memory, in words of the kernel.
func resident() string {
	b, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(b)) {
		if name, rest, _ := strings.Cut(line, ":"); name == "VmRSS" {
			return strings.Join(strings.Fields(rest), " ")
		}
	}
	return "unknown"
}

// Sixty-four processes open, write to a neighbour, meet and close: each pays for
// two connections, not for 63. The bound is for a machine that is busy with other
// things; on two idle processors it takes less than a second.
func TestSixtyFourRanks(t *testing.T) {
	for _, fabric := range []string{"shm", "tcp"} {
		t.Run(fabric, func(t *testing.T) {
			const n = 64
			start := time.Now()
			// Who waits long for a late rank connects with it, to see whether it hangs: not here.
			out, _, err := launchtest.Job{N: n, Fabric: fabric, Role: "neighbour", Env: []string{"RMA_HANG_TIMEOUT=-1s"}}.Run(t)
			took := time.Since(start)
			require.NoError(t, err, out)
			require.Equal(t, n, strings.Count(out, "] connected 2 "), out)
			t.Logf("%d ranks over %s: %v; %s", n, fabric, took.Round(time.Millisecond), out[:strings.IndexByte(out, '\n')])
		})
	}
}

// Everybody writes to everybody at once: all connections are made, of which each
// two ranks ask for at the same time.
func TestEverybodyConnects(t *testing.T) {
	for _, fabric := range []string{"shm", "tcp"} {
		t.Run(fabric, func(t *testing.T) {
			const n = 20
			out, _, err := job(t, n, fabric, "everybody", "unix")
			require.NoError(t, err, out)
			require.Equal(t, n, strings.Count(out, fmt.Sprintf("] connected %d ", n-1)), out)
		})
	}
}
