package wireup

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/testutil"
)

// over is a context that has ended.
func over() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// What one rank gives up is given up for all: for those that wait, for those that
// come later, and for one that had not even come; the next is a new one.
func TestExchangeGivenUp(t *testing.T) {
	t.Parallel()
	srv, root := serve(t, "unix", 3)
	js := joinAll(t, root, 3)
	for name, quit := range map[string]func(x *Exchange) error{
		"waiting": func(x *Exchange) error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond) // deadline: it has to end
			defer cancel()
			_, err := x.Finish(ctx)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			return err
		},
		"cancelled": func(x *Exchange) error {
			x.come()
			_, err := x.Finish(over())
			require.ErrorIs(t, err, context.Canceled)
			return err
		},
		"absent": func(x *Exchange) error {
			_, err := x.Finish(over())
			require.ErrorIs(t, err, context.Canceled)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			xs := make([]*Exchange, len(js))
			for r, j := range js {
				var err error
				xs[r], err = j.Exchange("allgather", "k", []byte{byte(r)})
				require.NoError(t, err)
			}
			early := make(chan error, 1)
			xs[0].come()
			go func() {
				_, err := xs[0].Wait(t.Context())
				early <- err
			}()
			gone := quit(xs[1])
			_, late := xs[2].Wait(t.Context())
			for _, err := range []error{<-early, gone, late} {
				var g *GivenUpError
				require.ErrorAs(t, err, &g)
				require.ErrorIs(t, err, ErrGivenUp)
				require.Equal(t, 1, g.Rank)
				require.Contains(t, err.Error(), "not called it")
			}
			_, again := xs[0].Finish(over())
			require.ErrorIs(t, again, ErrGivenUp, "what has ended stays as it is")
			require.NoError(t, each(js, func(j *Job) error {
				v, err := j.AllGather(t.Context(), "k", []byte{byte(10 + j.Rank())})
				if err == nil && v[2][0] != 12 {
					err = fmt.Errorf("joined with %d", v[2][0])
				}
				return err
			}))
		})
	}
	srv.mu.Lock()
	defer srv.mu.Unlock()
	require.Empty(t, srv.st.gathers)
	require.Equal(t, []int{0, 0, 0}, srv.st.stored)
}

// A wait whose context ends is taken up again, before and after the others came.
func TestExchangeGoesOn(t *testing.T) {
	t.Parallel()
	_, root := serve(t, "unix", 2)
	js := joinAll(t, root, 2)
	for i := range 6 {
		x, err := js[0].Exchange("barrier", "b", []byte{byte(i)})
		require.NoError(t, err)
		if i%2 == 0 {
			x.come()
		}
		_, err = x.Wait(over())
		require.ErrorIs(t, err, context.Canceled)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond) // deadline: it has to end
		_, err = x.Wait(ctx)
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		if i%3 == 0 && !x.begun.IsZero() {
			var te *TimeoutError
			require.ErrorAs(t, err, &te)
			require.Equal(t, []int{1}, te.Missing)
		}
		y, err := js[1].Exchange("barrier", "b", nil)
		require.NoError(t, err)
		y.come()
		got, err := x.Wait(t.Context())
		require.NoError(t, err)
		require.Equal(t, [][]byte{{byte(i)}, {}}, got)
		_, err = y.Wait(t.Context())
		require.NoError(t, err)
	}
}

// While the server is silent nobody knows; later everybody does.
func TestExchangeUndecided(t *testing.T) {
	t.Parallel()
	srv, root := serve(t, "unix", 2)
	js := joinAll(t, root, 2)
	js[0].cancelTime = 20 * time.Millisecond
	x, err := js[0].Exchange("allgather", "k", nil)
	require.NoError(t, err)
	x.come()
	testutil.Holding(&srv.mu, func() {
		_, err = x.Finish(over())
		require.ErrorIs(t, err, ErrUndecided)
		require.ErrorIs(t, err, context.Canceled)
	})
	for undecided(err) {
		_, err = x.Finish(t.Context())
	}
	require.ErrorIs(t, err, ErrGivenUp)
	_, err = js[1].AllGather(t.Context(), "k", nil)
	require.ErrorIs(t, err, ErrGivenUp)
}

func undecided(err error) bool { return errors.Is(err, ErrUndecided) }

// A rank that dies fails what it has not come to, for all, whenever they come.
func TestExchangeWithoutARank(t *testing.T) {
	t.Parallel()
	srv, root := serve(t, "unix", 4)
	js := joinAll(t, root, 4)
	var xs []*Exchange
	for _, j := range js {
		x, err := j.Exchange("allgather", "k", nil)
		require.NoError(t, err)
		xs = append(xs, x)
	}
	xs[0].come()
	require.NoError(t, js[0].Put(t.Context(), "here", nil), "the server has heard of it")
	js[3].conn.Close()
	<-js[1].Gone(3)
	js[2].conn.Close()
	<-js[1].Gone(2)
	for _, x := range xs[:2] {
		_, err := x.Wait(t.Context())
		var pe *PeerGoneError
		require.ErrorAs(t, err, &pe)
		require.Equal(t, []int{3}, pe.Ranks, "the first one decides")
	}
	srv.mu.Lock()
	defer srv.mu.Unlock()
	require.Empty(t, srv.st.gathers)
}

// An exchange without several ranks tells why the first of them ended.
func TestExchangeWithoutSeveral(t *testing.T) {
	t.Parallel()
	srv, root := serve(t, "unix", 4)
	js := []*Job{join(t, root, 0, 4), join(t, root, 1, 4)}
	srv.Lost(3, "killed")
	srv.Lost(2, "exit code 1")
	for _, j := range js {
		_, err := j.AllGather(t.Context(), "k", nil)
		var pe *PeerGoneError
		require.ErrorAs(t, err, &pe)
		require.Equal(t, []int{2, 3}, pe.Ranks)
		require.Equal(t, "exit code 1", pe.Detail)
		require.ErrorContains(t, err, "ranks 2, 3 gone (rank 2: exit code 1)")
	}
}

// What a rank may not store costs the server nothing.
func TestRefusedExchangesLeaveNothing(t *testing.T) {
	t.Parallel()
	const size = 1024
	srv, err := newServer(ServerConfig{Size: size})
	require.NoError(t, err)
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	c := newClient(srv, there, 0)
	for i := range 20_000 {
		typ := msgGather
		if i%2 == 0 {
			typ = msgGiveUp
		}
		require.NoError(t, srv.st.handle(c, message{typ: typ, id: uint32(i), key: fmt.Sprint("a/", i), val: nil}))
		clear(c.waits)
		c.queue = nil
	}
	require.LessOrEqual(t, len(srv.st.gathers)*size*slotCost, maxStored)
	require.LessOrEqual(t, srv.st.stored[0], maxStored)
	require.GreaterOrEqual(t, srv.st.stored[0], 0)
}

// Whatever ranks do, all agree on what became of each exchange, and nothing is left.
func TestExchangeRandom(t *testing.T) {
	t.Parallel()
	const n, calls = 4, 150
	srv, root := serve(t, "unix", n)
	js := joinAll(t, root, n)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	var came [n][calls]string
	require.NoError(t, each(js, func(j *Job) error {
		rng := rand.New(rand.NewPCG(seed, uint64(j.Rank())))
		for i := range calls {
			ctx, cancel := t.Context(), context.CancelFunc(func() {})
			switch rng.IntN(8) {
			case 0:
				ctx = over()
			case 1:
				ctx, cancel = context.WithTimeout(ctx, time.Duration(rng.IntN(300))*time.Microsecond) // deadline: some calls are given up
			}
			v, err := [][]byte(nil), error(nil)
			x, bad := j.Exchange("allgather", "k", []byte{byte(i)})
			if bad == nil {
				v, err = x.Finish(ctx)
			}
			cancel()
			if bad != nil {
				return bad
			}
			for undecided(err) {
				v, err = x.Finish(t.Context())
			}
			if err == nil {
				came[j.Rank()][i] = fmt.Sprint(v)
				continue
			}
			var g *GivenUpError
			if !errors.As(err, &g) {
				return err
			}
			came[j.Rank()][i] = fmt.Sprint("given up by ", g.Rank)
		}
		return nil
	}))
	for r := range n {
		require.Equal(t, came[0], came[r], "seed %d, rank %d", seed, r)
	}
	srv.mu.Lock()
	defer srv.mu.Unlock()
	require.Empty(t, srv.st.gathers)
	require.Equal(t, make([]int, n), srv.st.stored)
}
