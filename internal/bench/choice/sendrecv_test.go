package choice

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/ibv"
	"github.com/seed33544411/rma/fabric/sim"
	"github.com/seed33544411/rma/internal/bench"
	"github.com/seed33544411/rma/internal/message/pingpong"
	"github.com/seed33544411/rma/internal/offheap"
	"github.com/seed33544411/rma/internal/testutil"
	"github.com/seed33544411/rma/verbs"
)

func TestMain(m *testing.M) { testutil.Main(m) }

// swap is the control channel between two goroutines.
type swap struct {
	rank      int
	mine, its chan []byte
}

func swaps() (a, b *swap) {
	x, y := make(chan []byte, 1), make(chan []byte, 1)
	return &swap{0, x, y}, &swap{1, y, x}
}

func (s *swap) Rank() int { return s.rank }

func (s *swap) Exchange(ctx context.Context, mine []byte) ([]byte, error) {
	s.mine <- mine
	select {
	case b := <-s.its:
		return b, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// ranks returns two ranks over the links, and what closes them.
func ranks(ls [2]fabric.Link) (ks [2]*rank, done func() error) {
	a, b := swaps()
	for i, c := range []bench.Control{a, b} {
		k := &rank{ctl: c, req: &Request{Stall: testutil.Limit}, conn: bench.Conn{Link: ls[i]}, close: func() error { return nil }}
		k.onClose = func(f func() error) {
			before := k.close
			k.close = func() error {
				if err := f(); err != nil {
					return err
				}
				return before()
			}
		}
		ks[i] = k
	}
	return ks, func() error {
		if err := ks[0].close(); err != nil {
			return err
		}
		return ks[1].close()
	}
}

// Both ends transfer batches of many shapes, byte for byte, and give back all memory.
func TestTwoSided(t *testing.T) {
	devs := [2]string{}
	devs[0], devs[1] = testutil.RDMAPair(t)
	before := offheap.InUse(offheap.Scratch)
	var ls [2]fabric.Link
	for i, d := range devs {
		l, err := ibv.Open(ibv.Options{Device: d})
		require.NoError(t, err)
		defer func() { require.NoError(t, l.Close()) }()
		ls[i] = l
	}
	batches := [][]int{{1}, {0}, slices.Repeat([]int{8}, maxN), {64, 64, 100 << 10, 255, 256, 257}, {1 << 20, 1 << 20}}
	span := 0
	for _, sizes := range batches {
		span = max(span, pingpong.Need(sizes))
	}
	ks, done := ranks(ls)
	ctx := testutil.Context(t, testutil.Limit)
	var g errgroup.Group
	var us [2][]float64
	for i, k := range ks {
		g.Go(func() error {
			s, err := openTwoSided(ctx, k, span)
			if err != nil {
				return err
			}
			for _, sizes := range batches {
				if !s.load(sizes) {
					return fmt.Errorf("%v: the device does not carry it", sizes)
				}
				k.ref = s
				ns, err := k.pilotTwoSided(ctx)
				if err != nil {
					return fmt.Errorf("%v: %w", sizes, err)
				}
				us[i] = append(us[i], ns)
			}
			s.most = 100
			if s.load([]int{8, 101}) {
				return fmt.Errorf("a message longer than the device carries")
			}
			return nil
		})
	}
	require.NoError(t, g.Wait())
	for i, ns := range us[0] {
		require.Positive(t, ns, batches[i])
		require.Zero(t, us[1][i], "rank 0 measures")
	}
	require.NoError(t, done())
	require.Equal(t, before, offheap.InUse(offheap.Scratch))
}

// Without the other end, a transfer ends when it has taken too long, or with its context.
func TestTwoSidedEnds(t *testing.T) {
	dev, _ := testutil.RDMAPair(t)
	l, err := ibv.Open(ibv.Options{Device: dev})
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	ks, done := ranks([2]fabric.Link{l, l})
	ctx := testutil.Context(t, testutil.Limit)
	var g errgroup.Group
	for _, k := range ks {
		g.Go(func() (err error) {
			k.ref, err = openTwoSided(ctx, k, 4096)
			return err
		})
	}
	require.NoError(t, g.Wait())
	s := ks[0].ref
	require.True(t, s.load([]int{8}))
	s.stall = 1
	require.ErrorIs(t, s.Play(ctx, make([]int64, 1)), pingpong.ErrStalled)
	over, cancel := context.WithCancel(ctx)
	cancel()
	require.ErrorIs(t, s.until(over, &s.got, s.got+1), context.Canceled)
	require.NoError(t, done())
}

// Other links have no send and receive queues.
func TestTwoSidedIsOfVerbs(t *testing.T) {
	t.Parallel()
	l, err := sim.NewNetwork(sim.Options{}).NewLink()
	require.NoError(t, err)
	defer l.Close()
	ks, _ := ranks([2]fabric.Link{l, l})
	s, err := openTwoSided(t.Context(), ks[0], 64)
	require.NoError(t, err)
	require.Nil(t, s)
}

func TestTwoSidedAddress(t *testing.T) {
	t.Parallel()
	ok := twoSidedAddress{GID: verbs.GID{15: 1}, QPN: 2, PSN: 0xffffff, MTU: verbs.MTU1024, Most: 1}
	for name, spoil := range map[string]func(*twoSidedAddress){
		"": func(*twoSidedAddress) {}, "no address": func(a *twoSidedAddress) { a.GID = verbs.GID{} },
		"management": func(a *twoSidedAddress) { a.QPN = 1 }, "25 bits": func(a *twoSidedAddress) { a.QPN = 1 << 24 },
		"sequence": func(a *twoSidedAddress) { a.PSN = 1 << 24 }, "mtu": func(a *twoSidedAddress) { a.MTU = 0 },
	} {
		a := ok
		spoil(&a)
		b, err := json.Marshal(a)
		require.NoError(t, err)
		got, err := parseTwoSided(b)
		if name != "" {
			require.ErrorIs(t, err, ErrGrid, name)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, a, got)
	}
	_, err := parseTwoSided([]byte("{"))
	require.Error(t, err)
}

func TestSendRecvInResults(t *testing.T) {
	t.Parallel()
	r := Result{Fabric: "verbs", N: 1, Mix: "64", Predicted: Modes{1, 2, 3}, PredictedAuto: 1, PredictedSendRecv: 5,
		Series: Series{Eager: fixed(1), Gather: fixed(2), Scatter: fixed(3), Auto: fixed(2), Again: fixed(1), AgainOf: "eager", SendRecv: fixed(4)}}
	r.fill()
	require.InDelta(t, 4, r.SendRecvUS, 1e-9)
	require.InDelta(t, 1, r.OverSendRecv, 1e-9)
	require.InDelta(t, 0.25, r.ErrorSendRecv, 1e-9)
	require.InDelta(t, 1, r.Regret, 1e-9, "it is not a mode")
	s := Summarize([]Result{r})
	require.Equal(t, &Gain{1, 1, 1, 1}, s.OverSendRecv)
	require.InDelta(t, 0.25, s.SendRecv, 1e-9)

	var b bytes.Buffer
	w := NewWriter(&b, "table")
	require.NoError(t, w.Write(r))
	require.NoError(t, w.Close(s))
	require.Regexp(t, `(?s)auto µs +send/recv µs +gain +error +regret.* 2\.00 +4\.00 +\+100\.0% +\+25% +\+100\.0%`, b.String())
	require.Contains(t, b.String(), "gain over send/recv +100.0 %")
	require.NotContains(t, b.String(), "table µs")

	r.Series.SendRecv, r.SendRecvUS = nil, 0
	require.Nil(t, Summarize([]Result{r}).OverSendRecv)
}
