package ibv

import (
	"bufio"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/testutil"
)

// target is a peer in a process of its own: it connects, reports the address of its memory
// and polls until it is killed.
var target = testutil.NewChild("ibv-target", func(_ []string, in *bufio.Reader, out io.Writer) error {
	l, err := Open(Options{Device: os.Getenv("RMA_RDMA_DEVICE2")})
	if err != nil {
		return err
	}
	mem, err := l.Alloc(1<<16, fabric.AccessAll)
	if err != nil {
		return err
	}
	ep, err := l.NewEndpoint(fabric.EndpointOptions{})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%x %x\n", ep.Address(), mem.Key().Append(nil))
	line, err := in.ReadString('\n')
	if err != nil {
		return err
	}
	peer, err := hex.DecodeString(strings.TrimSpace(line))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), testutil.Limit)
	defer cancel()
	if err := ep.Connect(ctx, peer); err != nil {
		return err
	}
	fmt.Fprintln(out, "connected")
	var cs [8]fabric.Completion
	for {
		l.Poll(cs[:])
		cpu.Yield()
	}
})

// A peer is killed in the middle of transfers: every outstanding request ends exactly once,
// within a bounded time.
func TestPeerKilled(t *testing.T) {
	dev, _ := need(t)
	l, err := Open(Options{Device: dev})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	mem, err := l.Alloc(1<<16, fabric.AccessAll)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, mem.Close()) })
	ep, err := l.NewEndpoint(fabric.EndpointOptions{ID: 7, PeerTimeout: 300 * time.Millisecond})
	require.NoError(t, err)

	p := target.Start(t)
	line, err := p.Out.ReadString('\n')
	require.NoError(t, err)
	words := strings.Fields(line)
	require.Len(t, words, 2)
	addr, err := hex.DecodeString(words[0])
	require.NoError(t, err)
	kb, err := hex.DecodeString(words[1])
	require.NoError(t, err)
	key, _, err := fabric.ParseRemoteKey(kb)
	require.NoError(t, err)
	fmt.Fprintf(p.In, "%x\n", ep.Address())
	ctx, cancel := context.WithTimeout(context.Background(), testutil.Limit)
	defer cancel()
	require.NoError(t, ep.Connect(ctx, addr))
	_, err = p.Out.ReadString('\n')
	require.NoError(t, err)

	open := map[uint64]bool{}
	next, done, downs := uint64(0), 0, 0
	var cs [32]fabric.Completion
	poll := func(killed bool) {
		for _, c := range cs[:l.Poll(cs[:])] {
			require.Equal(t, uint32(7), c.EP)
			if c.Op == fabric.OpDown {
				downs++
				continue
			}
			require.True(t, open[c.ID], "%+v", c)
			delete(open, c.ID)
			done++
			if !killed {
				require.NoError(t, c.Err())
			} else {
				// The kernel may withdraw the memory before it destroys the queue pair.
				require.Contains(t, []fabric.Status{fabric.StatusOK, fabric.StatusPeerGone, fabric.StatusRemoteAccess,
					fabric.StatusRemoteOp, fabric.StatusRemoteInvalid, fabric.StatusFlushed}, c.Status)
			}
		}
	}
	post := func() error {
		op := []fabric.Op{fabric.OpWrite, fabric.OpRead}[next%2]
		n, err := ep.Post([]fabric.WR{{ID: next, Op: op, Local: []fabric.SGE{fabric.NewSGE(mem.Bytes()[:4096], mem.LKey())},
			RemoteAddr: key.Addr, RKey: key.RKey, Flags: fabric.FlagSignaled}})
		if n == 1 {
			open[next] = true
			next++
		}
		return err
	}
	limit := time.Now().Add(testutil.Limit)
	for done < 100 {
		require.NoError(t, post())
		poll(false)
		require.True(t, time.Now().Before(limit))
	}
	p.Kill()
	for downs == 0 || len(open) > 0 {
		if err := post(); err != nil {
			require.ErrorIs(t, err, fabric.ErrDown)
		}
		poll(true)
		cpu.Yield()
		require.True(t, time.Now().Before(limit), "%d outstanding, %d times down", len(open), downs)
	}
	for range 100 {
		poll(true)
	}
	require.Equal(t, 1, downs)
	t.Log(ep.Err())
}
