package rma

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/testutil"
	"github.com/seed33544411/rma/internal/wireup"
	"github.com/seed33544411/rma/sampling"
)

// hostRank is a rank of a job of three: its arguments are the rank, the job's root and
// token, a directory for profiles, and the time of a measurement. When its measurements have
// succeeded or failed, rank 0 writes its figures of the paths to the others, and its statistics.
var hostRank = testutil.NewChild("rank on a host", func(args []string, in *bufio.Reader, out io.Writer) error {
	ctx, cancel := context.WithTimeout(context.Background(), testutil.Limit)
	defer cancel()
	rank, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	token, err := hex.DecodeString(args[2])
	if err != nil {
		return err
	}
	budget, err := time.ParseDuration(args[4])
	if err != nil {
		return err
	}
	e, err := Open(ctx, &Config{
		Job: &Job{Rank: rank, Size: 3, Root: args[1], Token: token}, Fabric: FabricTCP, Profiles: args[3],
		PathBudget: budget, PeerTimeout: testutil.Limit, // the wire is made of goroutines, which a busy machine starves
	})
	if err != nil {
		return err
	}
	defer e.Close()
	if rank != 0 {
		if _, err = e.Peer(0).Recv(make([]byte, 8)).Wait(ctx); err == nil {
			err = e.Barrier(ctx)
		}
		return err
	}
	for to := 1; to < 3; to++ {
		if err := e.Peer(to).Send([]byte("hello")).Wait(ctx); err != nil {
			return err
		}
	}
	known := func() bool {
		near, far := e.bringup.Path(1), e.bringup.Path(2)
		return near.Class != "" && far.Class != "" && (far.Of == far.Class || e.Stats().PathsTime > 0)
	}
	for !known() {
		select {
		case <-time.After(time.Millisecond): // deadline: none, it looks again
		case <-ctx.Done():
			return fmt.Errorf("%w: %v", ctx.Err(), e.bringup.Path(2))
		}
	}
	found := foundPaths{Stats: e.Stats()}
	for to := range found.To {
		p := e.bringup.Path(to + 1)
		found.To[to].Class, found.To[to].Of, found.To[to].Source, found.To[to].Ls = p.Class, p.Of, p.Source, p.Params.Ls
		b := e.Peer(to + 1).Batch()
		for range 4 {
			b.Add(1, make([]byte, 64<<10))
		}
		if found.To[to].Explained, err = b.Explain(); err != nil {
			return err
		}
	}
	if err := json.NewEncoder(out).Encode(found); err != nil {
		return err
	}
	return e.Barrier(ctx)
})

type foundPaths struct {
	To [2]struct {
		Class, Of sampling.Class
		Source    string
		Ls        float64
		Explained string
	}
	Stats Stats
}

// A peer on this host and one behind a wire of 4 ms are of two classes over TCP, and have
// parameters of their own. The measurement waits for some hundred round trips of that wire, which
// makes it the longest test of this file.
func TestPathsOverANetwork(t *testing.T) {
	t.Parallel()
	const delay = 4 * time.Millisecond
	do := testutil.FarHosts(t, delay)
	dir := t.TempDir()
	measured := map[sampling.Class]bool{}
	ctx := testutil.Context(t, 5*testutil.Limit) // of as many jobs as a busy machine needs
	budget := 2 * time.Second
	for loaded := false; !loaded; {
		var ln net.Listener
		var err error
		do[0](func() { ln, err = net.Listen("tcp", "192.0.2.1:0") })
		require.NoError(t, err)
		token := bytes.Repeat([]byte{0x5a}, 16)
		srv, err := wireup.Serve(ctx, ln, wireup.ServerConfig{Size: 3, Token: token})
		require.NoError(t, err)
		var ranks [3]*testutil.Proc
		for r, host := range []int{0, 0, 1} {
			do[host](func() {
				ranks[r] = hostRank.Start(t, strconv.Itoa(r), ln.Addr().String(), hex.EncodeToString(token), dir, budget.String())
			})
		}
		var found foundPaths
		require.NoError(t, json.Unmarshal([]byte(ranks[0].Line(t, testutil.Limit)), &found))
		for r, p := range slices.Backward(ranks[:]) {
			require.NoError(t, p.Wait(testutil.Limit), "rank %d", r)
		}
		require.NoError(t, srv.Close())
		near, far := found.To[0], found.To[1]
		t.Logf("near: Ls %.0f ns\n%s\nfar: Ls %.0f ns\n%s", near.Ls, near.Explained, far.Ls, far.Explained)
		require.Equal(t, sampling.SameHost, near.Class)
		require.True(t, far.Class.IsLong(), far.Class)
		if far.Of != far.Class { // on a busy machine a measurement may fail
			budget = min(2*budget, sampling.MaxBudget)
			continue
		}
		if near.Ls >= far.Ls { // that of this host was measured while others had the processors
			dir, measured = t.TempDir(), map[sampling.Class]bool{}
			continue
		}
		source := "measurement"
		if loaded = measured[far.Class]; loaded { // there, also a round trip may be of another class than before
			source = "profile"
		}
		require.Equal(t, source, far.Source)
		require.Equal(t, loaded, found.Stats.PathsMeasured == 0)
		measured[far.Class] = true
		require.Greater(t, far.Ls, 0.7*float64(delay))
		require.Greater(t, far.Ls, near.Ls)
		require.Contains(t, far.Explained, "path: tcp, class "+string(far.Class)+"; parameters: "+source)
		t.Logf("took %v and %d bytes", found.Stats.PathsTime, found.Stats.PathsBytes)
	}
}
