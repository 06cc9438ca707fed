//go:build unix

package sockets

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/seed33544411/rma/internal/bench"
	"github.com/seed33544411/rma/internal/jobtest"
	"github.com/seed33544411/rma/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

// Each workload gives a consistent result over each transport.
func TestTransports(t *testing.T) {
	for _, transport := range Transports {
		t.Run(transport, func(t *testing.T) {
			es := jobtest.Open(t, 2, Fabric(transport))
			dir := t.TempDir()
			req := Request{Transports: []string{transport}, Conns: []int{1, 3}, Busy: []int{0}, Rounds: 1, Time: 2 * time.Millisecond}
			require.NoError(t, req.Check())
			a, b := net.Pipe()
			ctx := testutil.Context(t, testutil.Limit)
			client, server := &side{es[0], dir, Workloads()}, &side{es[1], dir, Workloads()}
			var g errgroup.Group
			g.Go(func() error { return server.server(ctx, newControl(b)) })
			var got []Result
			require.NoError(t, client.client(ctx, newControl(a), &req, func(r Result) error { got = append(got, r); return nil }))
			require.NoError(t, g.Wait())
			require.Equal(t, !overRma(transport), client.eng == nil && server.eng == nil, "engines take no time beside sockets")
			require.Len(t, got, 2*len(Workloads()))
			for _, r := range got {
				require.Equal(t, transport, r.Transport)
				require.GreaterOrEqual(t, r.Ops, r.Conns)
				require.Positive(t, r.P50)
				require.GreaterOrEqual(t, r.P99, r.P50)
				require.Positive(t, r.CPU)
				require.Equal(t, r.Workload == "stream", r.Bytes > 0)
			}
		})
	}
}

// half is a connection whose server has read less than was written.
type half struct {
	net.Conn
	rest io.Reader
}

func (h half) Write(p []byte) (int, error) { return len(p), nil }
func (h half) Read(p []byte) (int, error)  { return h.rest.Read(p) }

func TestLostBytesAreFound(t *testing.T) {
	s := &stream{conns: conns{half{rest: strings.NewReader("\x01\x00\x00\x00\x00\x00\x00\x00")}}, sent: make([]int64, 1)}
	require.NoError(t, s.Op(0))
	require.ErrorContains(t, s.Finish(), "1 bytes have arrived, want 65536")
}

// behind is a client whose server is behind until Finish.
type behind struct{ left atomic.Int64 }

func (b *behind) Op(int) error  { b.left.Add(1); return nil }
func (b *behind) Finish() error { b.left.Store(0); return nil }
func (b *behind) Close() error  { return nil }

// The time of a series begins when the server has done what the warm-up left, and ends when it has
// done the rest.
func TestWarmUpIsNotTimed(t *testing.T) {
	t.Parallel()
	c, r := &behind{}, &Result{Conns: 2}
	require.NoError(t, series(testutil.Context(t, testutil.Limit), time.Millisecond, c, r, func() (time.Duration, error) {
		require.Zero(t, c.left.Load())
		return 0, nil
	}))
	require.Positive(t, r.Ops)
}

func TestRequests(t *testing.T) {
	good := Request{Transports: []string{"unix"}, Conns: []int{1}, Busy: []int{0}, Rounds: 1, Time: time.Second}
	require.NoError(t, good.Check())
	for _, change := range []func(*Request){
		func(r *Request) { r.Transports = []string{"udp"} },
		func(r *Request) { r.Transports = nil },
		func(r *Request) { r.Conns = []int{0} },
		func(r *Request) { r.Conns = []int{maxConns + 1} },
		func(r *Request) { r.Busy = []int{-1} },
		func(r *Request) { r.Rounds = 0 },
		func(r *Request) { r.Time = 0 },
	} {
		r := good
		change(&r)
		require.ErrorIs(t, r.Check(), ErrRequest)
	}
	r := Request{Workloads: []string{"http", "ftp"}}
	_, err := r.choose(Workloads())
	require.ErrorContains(t, err, `workload "ftp": this program has [echo http stream]`)
}

// The ratio is taken round by round: a round in which the machine was slow counts for both.
func TestTable(t *testing.T) {
	var rs []Result
	for round, slow := range []float64{1, 10, 1} {
		rs = append(rs,
			Result{Round: round, Transport: "rmanet-shm", Workload: "stream", Conns: 8, Bytes: StreamBytes, Ops: 1000, Seconds: slow * 0.02, CPU: 0.01},
			Result{Round: round, Transport: "unix", Workload: "stream", Conns: 8, Bytes: StreamBytes, Ops: 1000, Seconds: slow * 0.03, CPU: 0.02})
	}
	var b bytes.Buffer
	require.NoError(t, WriteText(&b, rs))
	lines := strings.Split(b.String(), "\n")
	require.Equal(t, strings.Fields("0 stream 8 rmanet-shm 20.0 0.00 0.00 10.0 3277 1.50 1.50–1.50 0.50 0.50–0.50"), strings.Fields(lines[1]))
	require.Equal(t, strings.Fields("0 stream 8 unix 30.0 0.00 0.00 20.0 2185"), strings.Fields(lines[2]))
	b.Reset()
	require.NoError(t, bench.WriteLines(&b, rs))
	var r Result
	require.NoError(t, json.Unmarshal(b.Bytes()[:bytes.IndexByte(b.Bytes(), '\n')], &r))
	require.Equal(t, rs[0], r)
}
