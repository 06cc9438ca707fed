package compare

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/bench"
	"github.com/seed33544411/rma/internal/testutil"
)

// envFake makes the test binary act as a peer's program.
const envFake = "COMPARE_TEST_PEER"

func TestMain(m *testing.M) {
	if how := os.Getenv(envFake); how != "" {
		os.Exit(fake(how, os.Args[1:]))
	}
	testutil.Main(m)
}

// fake is a program with two sides: server `PORT` waits for client `ADDR PORT ITERS`,
// which prints a figure.
func fake(how string, args []string) int {
	if len(args) == 1 {
		if how == "deaf" {
			return 0
		}
		l, err := net.Listen("tcp", "127.0.0.1:"+args[0])
		if err != nil {
			return 1
		}
		c, err := l.Accept()
		if err != nil {
			return 1
		}
		_, _ = c.Read(make([]byte, 1)) // until the client has gone
		return 0
	}
	c, err := net.Dial("tcp", net.JoinHostPort(args[0], args[1]))
	if err != nil {
		return 1
	}
	defer c.Close()
	switch how {
	case "stuck":
		_, _ = c.Read(make([]byte, 1)) // for ever
	case "broken":
		fmt.Fprintln(os.Stderr, "no such device")
		return 3
	case "mute":
		return 0
	}
	fmt.Println("figure 2.0 iters", args[2])
	return 0
}

func fakePeer(t *testing.T, how string) *Peer {
	self, err := os.Executable()
	require.NoError(t, err)
	return &Peer{
		Name: "fake", Needs: []Need{{Program: self, Package: "fake-utils"}}, Trial: 7,
		Tests: map[string][]Kind{"shm": {Lat, Rate}},
		Plan: func(j Job) (Plan, error) {
			port := strconv.Itoa(j.Port)
			return Plan{
				Env: []string{envFake + "=" + how}, Server: []string{self, port},
				Client: []string{self, j.Addr, port, strconv.Itoa(j.Iters)},
			}, nil
		},
		Parse: func(out []byte, _ Job) (x float64, err error) {
			if _, err = fmt.Sscanf(string(out), "figure %g", &x); err != nil {
				err = ErrOutput
			}
			return x, err
		},
	}
}

func needProc(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("finds listening ports in /proc/net/tcp")
	}
}

// Rounds alternate which side goes first, and the row combines them.
func TestRunTakesTurns(t *testing.T) {
	t.Parallel()
	needProc(t)
	var rows []Row
	n := 0
	err := Run(testutil.Context(t, 60*time.Second), Request{
		Fabric: "shm", Peers: []*Peer{fakePeer(t, "well")}, Tests: []Test{{Rate, 64}, {Lat, 8}}, Rounds: 3,
	}, func(_ context.Context, test Test) (bench.Result, error) {
		n++
		return bench.Result{Mmsgs: 4, LatUS: bench.Latency{P50: 1}, CPUNS: 1500, Mode: "auto", Ways: &bench.Ways{Gather: 1}}, nil
	}, func(r Row) error { rows = append(rows, r); return nil })
	require.NoError(t, err)
	require.Equal(t, 6, n)
	require.Len(t, rows, 2)
	require.Equal(t, 2.0, rows[0].Ratio, "4 against 2 million a second")
	require.Equal(t, 2.0, rows[1].Ratio, "1 against 2 µs")
	require.Equal(t, 3, rows[0].Rounds)
	require.Equal(t, []float64{4, 2}, []float64{rows[0].Ours, rows[0].Theirs})

	var b bytes.Buffer
	require.NoError(t, bench.WriteLines(&b, rows))
	var line map[string]any
	require.NoError(t, json.Unmarshal([]byte(strings.Split(b.String(), "\n")[0]), &line))
	for _, key := range []string{"peer", "fabric", "test", "size", "ours", "theirs", "ratio", "rounds", "unit", "ratio_min", "ratio_max", "mode", "ways", "machine"} {
		require.Contains(t, line, key)
	}
	b.Reset()
	require.NoError(t, WriteText(&b, rows))
	require.Contains(t, b.String(), "ahead")
	require.Contains(t, b.String(), "  1.5  ")
	require.Equal(t, 1500.0, rows[0].OursCPU)
}

// The row of a peer reports its failure; the other peers are measured.
func TestRunTellsWhatAPeerFails(t *testing.T) {
	t.Parallel()
	needProc(t)
	for how, want := range map[string]string{"broken": "no such device", "mute": ErrOutput.Error(), "stuck": ErrStuck.Error(), "deaf": "before its client came"} {
		var rows []Row
		limit := 50 * time.Second // the others end by themselves, however busy the machine is
		if how == "stuck" {
			limit = time.Second
		}
		err := Run(testutil.Context(t, 60*time.Second), Request{
			Fabric: "shm", Peers: []*Peer{fakePeer(t, how)}, Tests: []Test{{Rate, 64}}, Limit: limit,
		}, nil, func(r Row) error { rows = append(rows, r); return nil })
		require.NoError(t, err, how)
		require.Len(t, rows, 1)
		require.Zero(t, rows[0].Rounds)
		require.Equal(t, 1, rows[0].Failed)
		require.Contains(t, rows[0].Why, want, how)
		var b bytes.Buffer
		require.NoError(t, WriteText(&b, rows))
		require.Contains(t, b.String(), "not measured")
	}
}

func TestRunEnds(t *testing.T) {
	t.Parallel()
	needProc(t)
	ctx, cancel := context.WithCancel(testutil.Context(t, 60*time.Second))
	r := Request{Fabric: "shm", Peers: []*Peer{fakePeer(t, "well")}, Tests: []Test{{Rate, 64}}}
	mine := errors.New("ours failed")
	require.ErrorIs(t, Run(ctx, r, func(context.Context, Test) (bench.Result, error) { return bench.Result{}, mine }, nil), mine)
	require.ErrorContains(t, Run(ctx, r, func(context.Context, Test) (bench.Result, error) { return bench.Result{}, nil }, nil), "measured nothing")
	err := Run(ctx, r, func(context.Context, Test) (bench.Result, error) {
		cancel()
		return bench.Result{Mmsgs: 1}, nil
	}, nil)
	require.ErrorIs(t, err, context.Canceled)
}

func TestRequestCheck(t *testing.T) {
	t.Parallel()
	gone := *ucx
	gone.Needs = []Need{{Program: "no-such-program-of-ucx", Package: "ucx-utils"}}
	r := Request{Fabric: "shm", Peers: []*Peer{&gone}, Tests: []Test{{Lat, 8}}}
	_, err := r.Check()
	require.ErrorIs(t, err, ErrMissing)
	var m *MissingError
	require.ErrorAs(t, err, &m)
	require.Equal(t, []string{"ucx-utils"}, m.Packages)
	require.ErrorContains(t, err, "apt-get install -y --no-install-recommends ucx-utils")

	p := fakePeer(t, "well")
	for _, bad := range []Request{{}, {Peers: []*Peer{p}}, {Peers: []*Peer{p}, Tests: r.Tests, Rounds: -1}, {Peers: []*Peer{p}, Tests: r.Tests, Time: time.Nanosecond}} {
		_, err := bad.Check()
		require.ErrorIs(t, err, ErrTest)
	}
	_, err = ucxEnv("verbs", &Place{})
	require.ErrorIs(t, err, ErrFabric)
	_, err = ucxEnv("pigeon", &Place{})
	require.ErrorIs(t, err, ErrFabric)
	env, err := ucxEnv("verbs", &Place{Device: "rxe0", GID: 1})
	require.NoError(t, err)
	require.Subset(t, env, []string{"UCX_TLS=rc_v", "UCX_NET_DEVICES=rxe0:1", "UCX_IB_GID_INDEX=1"})
}

func TestParseRefusals(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile(filepath.Join("testdata", "ucx_refused.txt"))
	require.NoError(t, err)
	_, err = parseUCX(b, Job{Test: Test{Rate, 64}})
	require.ErrorIs(t, err, ErrOutput)
	require.ErrorContains(t, err, "No such device")
}

func TestParseTests(t *testing.T) {
	t.Parallel()
	ts, err := ParseTests(Defaults)
	require.NoError(t, err)
	require.Equal(t, []Test{{Rate, 64}, {Lat, 8}, {BW, 64 << 10}, {BW, 1 << 20}}, ts)
	require.Equal(t, "bw:64K", ts[2].String())
	for _, bad := range []string{"", "rate", "speed:8", "rate:0", "rate:8,rate:8", "bw:128M", "bw:"} {
		_, err := ParseTests(bad)
		require.ErrorIs(t, err, ErrTest, bad)
	}
	_, err = Find([]string{"mpi"})
	require.ErrorIs(t, err, ErrPeer)
	_, err = Find([]string{"ucx", "ucx"})
	require.ErrorIs(t, err, ErrPeer)
	ps, err := Find(Names())
	require.NoError(t, err)
	require.Equal(t, Peers, ps)
}

func TestIterationsFillTheTime(t *testing.T) {
	t.Parallel()
	require.Equal(t, 500, Test{Rate, 64}.trial(500))
	require.Equal(t, 256, Test{BW, 1 << 20}.trial(500))
	require.Equal(t, 20, Test{BW, 64 << 20}.trial(500))
	require.Equal(t, 7, Test{BW, 64 << 20}.trial(7))
	require.Equal(t, 300_000, iterations(Test{Rate, 64}, 1, 300*time.Millisecond))
	require.Equal(t, 15_000, iterations(Test{Lat, 8}, 10, 300*time.Millisecond))
	require.Equal(t, 1000, iterations(Test{BW, 1000}, 10, 100*time.Millisecond))
	require.Equal(t, 20, iterations(Test{BW, 1 << 20}, 1, time.Millisecond))
	require.Equal(t, maxIters, iterations(Test{Rate, 8}, 1e6, time.Hour))
}

func TestListens(t *testing.T) {
	t.Parallel()
	const table = `  sl  local_address rem_address   st
   0: 00000000:4E21 00000000:0000 0A 00000000:00000000
   1: 0100007F:4E22 0100007F:9999 01 00000000:00000000
`
	require.True(t, listens(table, 0x4e21))
	require.False(t, listens(table, 0x4e22), "connected")
	require.False(t, listens(table, 0x9999))
}
