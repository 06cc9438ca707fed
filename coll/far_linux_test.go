package coll

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
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/internal/testutil"
	"github.com/seed33544411/rma/internal/wireup"
)

// farTeam is what the ranks of a job on two hosts do: half of the ranks are on each.
type farTeam struct {
	Ranks    int
	Conform  bool        // check all operations
	Measure  []farSeries // in turn, Rounds times
	Rounds   int
	Calls    int    // of a series
	Profiles string // directory
}

// farSeries is an operation by an algorithm, or auto.
type farSeries struct {
	Op, Alg string
	Bytes   int
}

// farTimes are the times of a series' calls, in µs, by round, on rank 0.
type farTimes struct {
	farSeries
	Chosen string
	US     []float64
}

// farTeamRank is a rank. Its arguments are the rank, the job's root and token, and a farTeam.
var farTeamRank = testutil.NewChild("rank of a far team", func(args []string, _ *bufio.Reader, out io.Writer) error {
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
	var do farTeam
	if err := json.Unmarshal([]byte(args[3]), &do); err != nil {
		return err
	}
	e, err := rma.Open(ctx, &rma.Config{
		Job: &rma.Job{Rank: rank, Size: do.Ranks, Root: args[1], Token: token}, Profiles: do.Profiles,
		PeerTimeout: testutil.Limit, // the wire is made of goroutines, which a busy machine starves
	})
	if err != nil {
		return err
	}
	defer e.Close()
	if err := do.settle(ctx, e); err != nil {
		return err
	}
	team, err := World(e)
	if err != nil {
		return err
	}
	if do.Conform {
		if err := do.conform(ctx, team); err != nil {
			return err
		}
	}
	times, err := do.measure(ctx, team)
	if err == nil && rank == 0 {
		err = json.NewEncoder(out).Encode(times)
	}
	if err != nil {
		return err
	}
	return e.Barrier(ctx)
})

// settle waits until the path between the hosts has been measured, if that matters: the ranks then
// choose by it.
func (f *farTeam) settle(ctx context.Context, e *rma.Engine) error {
	if err := e.Barrier(ctx); err != nil || len(f.Measure) == 0 {
		return err
	}
	if far := f.Ranks / 2; e.Rank() == 0 {
		if err := e.Peer(far).Send(nil).Wait(ctx); err != nil {
			return err
		}
		for e.Stats().PathsTime == 0 {
			// Or the first pair of the link had a path of this class, and has measured it.
			if path := e.Peer(far).Stats().Path; !strings.Contains(path, "not known") && !strings.Contains(path, "of class") {
				break
			}
			select {
			case <-time.After(time.Millisecond): // deadline: none, it looks again
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	} else if e.Rank() == far {
		if _, err := e.Peer(0).Recv(nil).Wait(ctx); err != nil {
			return err
		}
	}
	return e.Barrier(ctx)
}

// conform checks all operations, by the automatic choice and by hierarchy.
func (f *farTeam) conform(ctx context.Context, team *Team) error {
	for _, force := range []string{"", "barrier=hierarchy,bcast=hierarchy,reduce=hierarchy,allreduce=hierarchy,reducescatter=hierarchy,gather=hierarchy,scatter=hierarchy,allgather=hierarchy,alltoall=hierarchy,allgatherv=hierarchy,reducescatterv=hierarchy,scan=hierarchy,exscan=hierarchy,gatherv=hierarchy,scatterv=hierarchy,alltoallv=hierarchy"} {
		if err := team.Force(force); err != nil {
			return err
		}
		for _, n := range []int{1, 3000, 40000} {
			for _, root := range []int{0, f.Ranks - 1} {
				if err := conform(ctx, team, root, n, uint64(n)); err != nil {
					return fmt.Errorf("%q, %d elements, root %d: %w", force, n, root, err)
				}
			}
		}
	}
	return nil
}

// measure measures the series.
func (f *farTeam) measure(ctx context.Context, team *Team) ([]farTimes, error) {
	out := make([]farTimes, len(f.Measure))
	for range f.Rounds {
		for i, s := range f.Measure {
			t := &out[i]
			t.farSeries = s
			if err := team.Force(s.Op + "=" + s.Alg); err != nil {
				return nil, err
			}
			buf, all, in := make([]int64, s.Bytes/8), make([]int64, s.Bytes/8*team.Size()), make([]int64, s.Bytes/8*team.Size())
			mine := func(r int) []int64 { return all[r*len(buf) : (r+1)*len(buf)-r%2*min(1, len(buf))] } // of blocks of different lengths
			var blocks [][]int64
			for r := range team.Size() {
				blocks = append(blocks, mine(r))
			}
			var start time.Time
			for k := range f.Calls + 1 {
				if k == 1 { // the first one makes the schedule
					start = time.Now()
				}
				var err error
				switch s.Op {
				case "barrier":
					err = Barrier(ctx, team)
				case "bcast": // until the last rank has the data, as rank 0 hears
					if err = Bcast(ctx, team, team.Size()/2-1, buf); err == nil {
						err = Barrier(ctx, team)
					}
				case "allreduce":
					err = Allreduce(ctx, team, nil, buf, Max)
				case "allgather":
					err = Allgather(ctx, team, buf, all[:len(buf)*team.Size()])
				case "gatherv":
					if err = Gatherv(ctx, team, 0, mine(team.Rank()), blocks); err == nil {
						err = Barrier(ctx, team)
					}
				case "scatterv": // as bcast
					if err = Scatterv(ctx, team, 0, blocks, mine(team.Rank())); err == nil {
						err = Barrier(ctx, team)
					}
				case "alltoallv": // between ranks r and s len(buf) elements, or one less if r + s is odd
					part := func(all []int64) (blocks [][]int64) {
						for r := range team.Size() {
							blocks = append(blocks, all[r*len(buf):(r+1)*len(buf)-(r+team.Rank())%2])
						}
						return blocks
					}
					err = Alltoallv(ctx, team, part(all), part(in))
				case "scan": // of which rank 0 waits for nobody
					if err = Scan(ctx, team, nil, buf, Max); err == nil {
						err = Barrier(ctx, team)
					}
				default:
					err = fmt.Errorf("no operation %q", s.Op)
				}
				if err != nil {
					return nil, err
				}
			}
			took := time.Since(start)
			var err error
			if t.Chosen, _, err = team.Choice(s.Op, s.Bytes); err != nil {
				return nil, err
			}
			t.US = append(t.US, float64(took.Microseconds())/float64(f.Calls))
		}
	}
	return out, nil
}

// run starts the ranks on two hosts.
func (f farTeam) run(tb testing.TB, do [2]func(func())) (times []farTimes) {
	var ln net.Listener
	var err error
	do[0](func() { ln, err = net.Listen("tcp", "192.0.2.1:0") })
	require.NoError(tb, err)
	token := bytes.Repeat([]byte{0x5a}, 16)
	srv, err := wireup.Serve(testutil.Context(tb, testutil.Limit), ln, wireup.ServerConfig{Size: f.Ranks, Token: token})
	require.NoError(tb, err)
	f.Profiles = tb.TempDir()
	text, err := json.Marshal(f)
	require.NoError(tb, err)
	ranks := make([]*testutil.Proc, f.Ranks)
	for r := range ranks {
		do[2*r/f.Ranks](func() {
			ranks[r] = farTeamRank.Start(tb, strconv.Itoa(r), ln.Addr().String(), hex.EncodeToString(token), string(text))
		})
	}
	require.NoError(tb, json.Unmarshal([]byte(ranks[0].Line(tb, testutil.Limit)), &times))
	for _, p := range ranks {
		require.NoError(tb, p.Wait(testutil.Limit))
	}
	require.NoError(tb, srv.Close())
	return times
}

// Operations among ranks of two hosts, which share memory only within one, have the right results.
func TestFarTeam(t *testing.T) {
	t.Parallel()
	do := testutil.FarHosts(t, 100*time.Microsecond)
	farTeam{Ranks: 6, Conform: true}.run(t, do)
}

// BenchmarkFarTeam measures algorithms among 2 x 4 and 2 x 8 ranks with 100 µs and 1 ms between the hosts.
func BenchmarkFarTeam(b *testing.B) {
	for _, delay := range []time.Duration{100 * time.Microsecond, time.Millisecond} {
		for _, ranks := range []int{8, 16} {
			for _, s := range []struct {
				op    string
				sizes []int
				flat  []string
			}{
				{"barrier", []int{0}, []string{"dissemination"}},
				{"bcast", []int{8, 1 << 20}, []string{"binomial", "chain", "scatter"}},
				{"allreduce", []int{8, 64 << 10, 1 << 20}, []string{"doubling", "halving", "ring"}},
				{"allgather", []int{8, 64 << 10}, []string{"dissemination", "ring", "linear"}},
				{"scan", []int{8, 64 << 10}, []string{"dissemination"}},
				{"gatherv", []int{64, 1 << 10}, []string{"linear"}},
				{"scatterv", []int{64, 1 << 10}, []string{"linear"}},
				{"alltoallv", []int{8, 64, 240}, []string{"linear"}},
			} {
				b.Run(fmt.Sprintf("%v/%d/%s", delay, ranks, s.op), func(b *testing.B) {
					var all []farSeries
					for _, n := range s.sizes {
						for _, alg := range append(s.flat, "hierarchy", "auto") {
							all = append(all, farSeries{s.op, alg, n})
						}
					}
					do := testutil.FarHosts(b, delay)
					for b.Loop() {
						for _, t := range (farTeam{Ranks: ranks, Measure: all, Rounds: 15, Calls: 10}).run(b, do) {
							slices.Sort(t.US)
							q := len(t.US) / 4
							b.Logf("%-10s %8d  %-14s %9.0f µs (%.0f to %.0f)  %s", t.Op, t.Bytes, t.Alg, t.US[len(t.US)/2], t.US[q], t.US[len(t.US)-1-q], t.Chosen)
						}
					}
				})
			}
		}
	}
}
