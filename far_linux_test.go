package rma

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"io"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/testutil"
	"github.com/seed33544411/rma/internal/wireup"
	"github.com/seed33544411/rma/sampling"
)

// farStream is what a far pair does: rank 0 puts or sends Count times Size bytes, Warm times
// before that.
type farStream struct {
	What              string
	Size, Count, Warm int
	Profiles          string
	Budget            time.Duration // of measuring the path
}

// farResult is what rank 0 of a far pair found.
type farResult struct {
	Seconds  float64 // of the counted part
	Ring     int     // bytes of the peer's ring at the end
	Rings    RingStats
	Path     string
	Measured bool    // the path's class has parameters of its own
	Ls       float64 // ns, of the path's parameters
}

// farWindow bounds the operations of a far stream under way.
const farWindow = 16384

// farPairRank is a rank of a far pair. Its arguments are the rank, the job's root and token, and
// a farStream.
var farPairRank = testutil.NewChild("rank of a far pair", func(args []string, _ *bufio.Reader, out io.Writer) error {
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
	var do farStream
	if err = json.Unmarshal([]byte(args[3]), &do); err != nil {
		return err
	}
	e, err := Open(ctx, &Config{
		Job: &Job{Rank: rank, Size: 2, Root: args[1], Token: token}, Fabric: FabricTCP, Profiles: do.Profiles, PathBudget: do.Budget,
		PeerTimeout: testutil.Limit, // the wire is made of goroutines, which a busy machine starves
	})
	if err != nil {
		return err
	}
	defer e.Close()
	win, err := e.Window(ctx, do.Size)
	if err != nil {
		return err
	}
	if rank == 0 {
		if err := e.Peer(1).Send(nil).Wait(ctx); err != nil {
			return err
		}
		for p := e.bringup.Path(1); p.Class == "" || p.Of != p.Class && e.Stats().PathsTime == 0; p = e.bringup.Path(1) {
			select {
			case <-time.After(time.Millisecond): // deadline: none, it looks again
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	} else if _, err := e.Peer(0).Recv(nil).Wait(ctx); err != nil {
		return err
	}
	var found farResult
	for _, n := range []int{do.Warm, do.Count} {
		start := time.Now()
		if err := do.stream(ctx, e, win, n); err != nil {
			return err
		}
		found.Seconds = time.Since(start).Seconds()
	}
	if rank == 0 {
		s := e.Peer(1).Stats()
		found.Ring, found.Rings, found.Path = s.Messages.PeerRing, e.Stats().Rings, s.Path
		path := e.bringup.Path(1)
		found.Measured, found.Ls = path.Of == path.Class, path.Params.Ls
		if err := json.NewEncoder(out).Encode(found); err != nil {
			return err
		}
	}
	return e.Barrier(ctx)
})

// stream puts or sends n times and ends when the peer has answered that all has arrived.
func (f *farStream) stream(ctx context.Context, e *Engine, win *Window, n int) error {
	peer := e.Peer(1 - e.Rank())
	var waits [farWindow]func() error
	do := func(i int) func() error {
		if e.Rank() == 1 {
			r := peer.Recv(make([]byte, f.Size))
			return func() error { _, err := r.Wait(ctx); return err }
		}
		if f.What == "put" {
			r := peer.Put(win.At(1, 0), win.Slice(0, f.Size))
			return func() error { return r.Wait(ctx) }
		}
		r := peer.SendBuffer(0, win.Slice(0, f.Size))
		return func() error { return r.Wait(ctx) }
	}
	if e.Rank() == 1 && f.What == "put" {
		n = 0
	}
	window := min(farWindow, max(16, (64<<20)/f.Size))
	for i := range n + window {
		w := &waits[i%window]
		if *w != nil {
			if err := (*w)(); err != nil {
				return err
			}
			*w = nil
		}
		if i < n {
			*w = do(i)
		}
	}
	if e.Rank() == 1 {
		return peer.SendTag(1, nil).Wait(ctx)
	}
	_, err := peer.RecvTag(1, nil).Wait(ctx)
	return err
}

// run performs the stream between two hosts with a wire between them.
func (f farStream) run(tb testing.TB, do [2]func(func())) (found farResult) {
	var ln net.Listener
	var err error
	do[0](func() { ln, err = net.Listen("tcp", "192.0.2.1:0") })
	require.NoError(tb, err)
	token := bytes.Repeat([]byte{0x5a}, 16)
	srv, err := wireup.Serve(testutil.Context(tb, testutil.Limit), ln, wireup.ServerConfig{Size: 2, Token: token})
	require.NoError(tb, err)
	text, err := json.Marshal(f)
	require.NoError(tb, err)
	var ranks [2]*testutil.Proc
	for r := range ranks {
		do[r](func() {
			ranks[r] = farPairRank.Start(tb, strconv.Itoa(r), ln.Addr().String(), hex.EncodeToString(token), string(text))
		})
	}
	require.NoError(tb, json.Unmarshal([]byte(ranks[0].Line(tb, testutil.Limit)), &found))
	for _, p := range ranks {
		require.NoError(tb, p.Wait(testutil.Limit))
	}
	require.NoError(tb, srv.Close())
	return found
}

// The two ranks of a job that are far from each other are the first pair, which measures the link
// in Open: the time of a start is too short for their round trips. They measure the path later,
// as pairs of other classes do, and do not take the parameters of a near one for its own.
func TestFirstPairIsFar(t *testing.T) {
	t.Parallel()
	const delay = 2 * time.Millisecond
	do := testutil.FarHosts(t, delay)
	for budget := time.Second; ; budget = min(2*budget, sampling.MaxBudget) { // on a busy machine a measurement may fail
		found := farStream{What: "send", Size: 8, Count: 1, Profiles: t.TempDir(), Budget: budget}.run(t, do)
		if found.Measured {
			require.Greater(t, found.Ls, 0.7*float64(delay), found.Path)
			return
		}
	}
}

// BenchmarkFarStream measures streams over a path of 10 ms of round trip.
func BenchmarkFarStream(b *testing.B) {
	do := testutil.FarHosts(b, 5*time.Millisecond)
	dir := b.TempDir()
	for _, what := range []string{"send", "put"} {
		for _, size := range []int{1 << 10, 16 << 10, 256 << 10, 1 << 20} {
			b.Run(what+"/"+strconv.Itoa(size), func(b *testing.B) {
				n := min((64<<20)/size, 40000)
				for range b.N {
					found := farStream{What: what, Size: size, Count: n, Warm: n, Profiles: dir, Budget: 5 * time.Second}.run(b, do)
					b.ReportMetric(float64(size*n)/found.Seconds/1e6, "MB/s")
					b.ReportMetric(float64(found.Ring), "ring")
				}
			})
		}
	}
}
