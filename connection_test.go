package rma

import (
	"context"
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/bringup"
	"github.com/seed33544411/rma/internal/links"
	"github.com/seed33544411/rma/internal/testutil"
	"github.com/seed33544411/rma/internal/wireup"
	"github.com/seed33544411/rma/mr"
)

// connectedTo lists the ranks that e has a connection with.
func connectedTo(e *Engine) (ranks []int) {
	for r := range e.Size() {
		if e.Peer(r).Stats().Connected {
			ranks = append(ranks, r)
		}
	}
	return ranks
}

// Two of three ranks communicate: there is one connection, and it costs the third rank
// nothing.
func TestOnlyPeersInUseAreConnected(t *testing.T) {
	onAll(t, 3, func(t *testing.T, es []*Engine) {
		ctx := testutil.Context(t, testutil.Limit)
		mems, keys := share(t, es, 4096)
		for _, e := range es {
			require.Empty(t, connectedTo(e))
			e.Peer(2).Fence() // of nothing
			require.NoError(t, e.Peer(2).Flush().Wait(ctx))
			require.NoError(t, e.FlushAll(ctx))
		}
		together(t, es, func(ctx context.Context, e *Engine) error { return e.Barrier(ctx) })
		require.NoError(t, es[0].Peer(1).Put(keys[1].At(0), mems[0].Slice(0, 64)).Wait(ctx))
		require.Equal(t, []int{1}, connectedTo(es[0]))
		testutil.Eventually(t, testutil.Limit, func() bool { return len(connectedTo(es[1])) == 1 }, "the other side")
		require.Equal(t, []int{0}, connectedTo(es[1]))
		require.Empty(t, connectedTo(es[2]))
		require.Equal(t, 1, es[0].Stats().PeersConnected)
		require.Zero(t, es[2].Stats().PeersConnected)
	})
}

// First operations of both sides, and of several goroutines, cross: one connection
// results, and everything arrives in order.
func TestSimultaneousFirstUse(t *testing.T) {
	const n, each = 6, 40
	onAll(t, n, func(t *testing.T, es []*Engine) {
		mems, keys := share(t, es, 1<<16)
		together(t, es, func(ctx context.Context, e *Engine) error {
			var g errgroup.Group
			for to := range es {
				for lane := range 2 {
					g.Go(func() error {
						cell := 1024 + 16*(e.Rank()*2+lane)
						var last Request
						for i := range each {
							src := 8192 + 8*((to*2+lane)*each+i)
							binary.NativeEndian.PutUint64(mems[e.Rank()].Bytes()[src:], uint64(i+1))
							last = e.Peer(to).Put(keys[to].At(cell), mems[e.Rank()].Slice(src, 8))
						}
						if _, err := e.Peer(to).FetchAdd(keys[to].At(0), 1).Wait(ctx); err != nil {
							return err
						}
						return last.Wait(ctx)
					})
				}
			}
			return g.Wait()
		})
		for r, e := range es {
			require.EqualValues(t, 2*n, binary.NativeEndian.Uint64(mems[r].Bytes()))
			for from := range 2 * n {
				require.EqualValues(t, each, binary.NativeEndian.Uint64(mems[r].Bytes()[1024+16*from:]))
			}
			require.Len(t, connectedTo(e), n)
		}
	})
}

// A receive connects as well, and a message finds a receiver that waits.
func TestMessagesConnect(t *testing.T) {
	onEach(t, func(t *testing.T, fabric string) {
		es := open(t, 2, fabric)
		ctx := testutil.Context(t, testutil.Limit)
		buf := make([]byte, 8)
		recv := es[1].Peer(0).Recv(buf)
		require.NoError(t, es[0].Peer(1).Send([]byte("hello")).Wait(ctx))
		n, err := recv.Wait(ctx)
		require.NoError(t, err)
		require.Equal(t, "hello", string(buf[:n]))
		recv = es[0].Peer(0).Recv(buf)
		require.NoError(t, es[0].Peer(0).Send([]byte("me")).Wait(ctx))
		_, err = recv.Wait(ctx)
		require.NoError(t, err)
		require.False(t, es[0].Peer(0).Stats().Connected)
	})
}

// A receive from any peer connects with the peers that send, before it or after, and with
// no others.
func TestAnySourceConnectsWithSenders(t *testing.T) {
	onEach(t, func(t *testing.T, fabric string) {
		es := open(t, 4, fabric)
		ctx := testutil.Context(t, testutil.Limit)
		early := es[1].Peer(0).Send([]byte("early"))
		testutil.Eventually(t, testutil.Limit, func() bool { return len(connectedTo(es[0])) == 1 }, "the first sender")
		seen := map[int]string{}
		buf := make([]byte, 16)
		receive := func() {
			m, err := es[0].Recv(buf).WaitFrom(ctx)
			require.NoError(t, err)
			seen[m.From] = string(buf[:m.Len])
		}
		receive()
		late := es[2].Peer(0).Send([]byte("late"))
		receive()
		require.NoError(t, late.Wait(ctx))
		require.Equal(t, map[int]string{1: "early", 2: "late"}, seen)
		require.NoError(t, early.Wait(ctx))
		require.Equal(t, []int{1, 2}, connectedTo(es[0]))
		require.Empty(t, connectedTo(es[3]))
	})
}

// impostor joins the job as rank 1 of 2 without an engine: it takes part in Open, and
// answers no connection request by itself. told gets the values that peers send to it. The link "sim" is one
// of shared.
func impostor(t *testing.T, fabric string) (e *Engine, j *wireup.Job, told chan [2]string) {
	config := rendezvous(t, 2, fabric)
	told = make(chan [2]string, 16)
	var g errgroup.Group
	g.Go(func() (err error) {
		c := config(0)
		if c.Sampling = "off"; fabric == "sim" {
			c.Fabric, c.Device = "", fabric
		}
		e, err = Open(context.Background(), c)
		return err
	})
	g.Go(func() (err error) {
		c := config(1)
		if j, err = wireup.Join(context.Background(), wireup.Config{Rank: 1, Size: 2, Root: c.Job.Root, Token: c.Job.Token}); err != nil {
			return err
		}
		j.NotifyReceived(func(_ int, key string, val []byte) { told <- [2]string{key, string(val)} })
		ctx := testutil.Context(t, testutil.Limit)
		for _, open := range [][]string{nil, {fabric}} {
			if _, err := j.AllGather(ctx, "rma/offer", links.NewOffer(open).Append(nil)); err != nil {
				return err
			}
		}
		_, err = j.AllGather(ctx, "rma/open", nil)
		return err
	})
	require.NoError(t, g.Wait())
	t.Cleanup(func() {
		require.NoError(t, e.Close())
		require.NoError(t, j.Close())
	})
	return e, j, told
}

// anyKey returns a key of memory of rank 1 that is never accessed.
func anyKey(e *Engine) Key {
	mem, err := e.Alloc(4096)
	if err != nil {
		panic(err)
	}
	v := mem.Key().value()
	v.Owner = owner(1)
	return newKey(v)
}

func TestPeerThatDoesNotConnect(t *testing.T) {
	t.Parallel()
	const link = "tcp"
	request := func(address string) []byte {
		return (&bringup.Request{Link: linkNumber[link], Address: []byte(address)}).Append(nil)
	}
	for name, c := range map[string]struct {
		timeout time.Duration
		do      func(t *testing.T, j *wireup.Job)
		is      []error
		says    string
	}{
		"silent": {100 * time.Millisecond, nil, []error{ErrNoConnection, context.DeadlineExceeded}, "no answer within 100ms"},
		"leaves": {time.Hour, func(t *testing.T, j *wireup.Job) { require.NoError(t, j.Close()) }, []error{ErrPeerGone}, "left"},
		"no address": {time.Hour, func(t *testing.T, j *wireup.Job) {
			require.NoError(t, j.Send(t.Context(), 0, bringup.KeyRequest, request("nonsense")))
		}, []error{ErrNoConnection, fabric.ErrBadAddress}, ""},
		"nothing": {time.Hour, func(t *testing.T, j *wireup.Job) {
			require.NoError(t, j.Send(t.Context(), 0, bringup.KeyRequest, nil))
		}, []error{ErrNoConnection, fabric.ErrBadAddress}, "0 bytes"},
		"another version": {time.Hour, func(t *testing.T, j *wireup.Job) {
			old := request("nonsense")
			old[0] = linkNumber[link]
			require.NoError(t, j.Send(t.Context(), 0, bringup.KeyRequest, old))
		}, []error{ErrNoConnection, fabric.ErrBadAddress}, "use the same version of rma on all ranks"},
		"another link": {time.Hour, func(t *testing.T, j *wireup.Job) {
			require.NoError(t, j.Send(t.Context(), 0, bringup.KeyRequest, (&bringup.Request{Link: linkNumber["ibv"], Address: []byte{1, 2, 3}}).Append(nil)))
		}, []error{ErrNoConnection, fabric.ErrBadAddress}, "over link 1"},
		"refuses": {time.Hour, func(t *testing.T, j *wireup.Job) {
			require.NoError(t, j.Send(t.Context(), 0, bringup.KeyRefuse, []byte("\x00\x00\x00\x00\x00out of \x00 queues")))
		}, []error{ErrNoConnection}, `rank 1: "out of \x00 queues"`},
		"says other things first": {time.Hour, func(t *testing.T, j *wireup.Job) {
			require.NoError(t, j.Send(t.Context(), 0, "hello", []byte("x")))
			require.NoError(t, j.Send(t.Context(), 0, bringup.KeyRequest, request("nonsense")))
			require.NoError(t, j.Send(t.Context(), 0, bringup.KeyRequest, request("again")))
		}, []error{ErrNoConnection, fabric.ErrBadAddress}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := testutil.Context(t, testutil.Limit)
			e, j, told := impostor(t, link)
			k := anyKey(e)
			mem, err := e.Alloc(64)
			require.NoError(t, err)
			own := mem.Key()
			require.NoError(t, e.Peer(0).Put(own.At(8), mem.Slice(0, 8)).Wait(ctx))
			e.bringup.SetupTimeout = c.timeout
			put, send := e.Peer(1).Put(k.At(0), mem.Slice(0, 8)), e.Peer(1).Send([]byte("x"))
			if c.do != nil { // else the time may be over before there is a request
				said := <-told
				require.Equal(t, bringup.KeyRequest, said[0])
				require.Equal(t, 1<<4|linkNumber[link], said[1][0], "version and link")
				c.do(t, j)
			}
			err = put.Wait(ctx)
			var pe *PeerError
			require.ErrorAs(t, err, &pe)
			for _, is := range c.is {
				require.ErrorIs(t, err, is)
			}
			require.ErrorContains(t, err, c.says)
			require.ErrorIs(t, send.Wait(ctx), c.is[0])
			// Later operations fail at once; the rank's connection with itself is not
			// affected.
			require.ErrorIs(t, e.Peer(1).Put(k.At(0), mem.Slice(0, 8)).Wait(ctx), c.is[0])
			require.ErrorIs(t, e.Peer(1).Recv(nil).Request.Wait(ctx), c.is[0])
			require.NoError(t, e.Peer(0).Put(own.At(8), mem.Slice(0, 8)).Wait(ctx))
			require.Error(t, e.Peer(1).Stats().Err)
		})
	}
}

// A peer requests a connection and then neither connects nor leaves: this side has posted
// no operation, and its Close does not wait.
func TestRequestWithoutConnection(t *testing.T) {
	for _, link := range []string{"shm", "tcp"} {
		t.Run(link, func(t *testing.T) {
			t.Parallel()
			e, j, told := impostor(t, link)
			l, err := links.Open(link, links.Options{})
			require.NoError(t, err)
			ep, err := l.NewEndpoint(fabric.EndpointOptions{})
			require.NoError(t, err)
			require.NoError(t, j.Send(t.Context(), 0, bringup.KeyRequest, (&bringup.Request{Link: linkNumber[link], Address: ep.Address()}).Append(nil)))
			require.Equal(t, bringup.KeyRequest, (<-told)[0], "the answer")
			require.False(t, e.Peer(1).Stats().Connected)
			require.NoError(t, e.Close())
			require.NoError(t, ep.Close())
			require.NoError(t, l.Close())
		})
	}
}

// Over a link whose ends connect without waiting for each other, nothing is posted before the
// peer is connected, which it tells once.
func TestPostsWaitForThePeerToConnect(t *testing.T) {
	t.Parallel()
	ctx := testutil.Context(t, testutil.Limit)
	e, j, told := impostor(t, "sim")
	l, err := shared.NewLink()
	require.NoError(t, err)
	mem := make([]byte, 64)
	region, err := l.Register(mem, fabric.AccessRemoteWrite|fabric.AccessLocalWrite)
	require.NoError(t, err)
	ep, err := l.NewEndpoint(fabric.EndpointOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, errors.Join(ep.Close(), region.Close(), l.Close())) })

	at := region.Key()
	sim := linkNumber["sim"]
	k := mr.Key{Addr: at.Addr, Len: uint64(len(mem)), Rights: fabric.AccessRemoteWrite, Rails: 1 << sim, Owner: owner(1)}
	k.RKeys[sim] = at.RKey
	key := newKey(k)
	own, err := e.Alloc(8)
	require.NoError(t, err)
	copy(own.Bytes(), "12345678")
	put := e.Peer(1).Put(key.At(8), own.Slice(0, 8))
	says := func() (key string, val []byte) {
		testutil.Within(t, testutil.Limit, "this side says something", func() {
			v := <-told
			key, val = v[0], []byte(v[1])
		})
		return key, val
	}
	what, val := says()
	require.Equal(t, bringup.KeyRequest, what)
	request, err := bringup.ParseRequest(val)
	require.NoError(t, err)
	number := make([]byte, 4)
	require.NoError(t, j.Send(ctx, 0, bringup.KeyReady, number), "before a request: is ignored")
	require.NoError(t, j.Send(ctx, 0, bringup.KeyRequest, (&bringup.Request{Link: sim, Address: ep.Address()}).Append(nil)))
	what, val = says()
	require.Equal(t, bringup.KeyReady, what)
	require.Equal(t, number, val)
	require.False(t, e.Peer(1).Stats().Connected, "the peer is not connected")
	require.NoError(t, ep.Connect(ctx, request.Address))
	require.NoError(t, j.Send(ctx, 0, bringup.KeyReady, number))
	require.NoError(t, j.Send(ctx, 0, bringup.KeyReady, number), "again: is ignored")
	require.NoError(t, put.Wait(ctx))
	require.Equal(t, "12345678", string(mem[8:16]))
	require.True(t, e.Peer(1).Stats().Connected)
}

// Operations of an engine that is closed while it waits for a peer fail with ErrClosed.
func TestCloseWhileConnecting(t *testing.T) {
	t.Parallel()
	e, _, told := impostor(t, "shm")
	mem, err := e.Alloc(64)
	require.NoError(t, err)
	put, recv := e.Peer(1).Put(anyKey(e).At(0), mem.Slice(0, 8)), e.Peer(1).Recv(make([]byte, 8))
	<-told
	require.NoError(t, e.Close())
	require.ErrorIs(t, put.Wait(t.Context()), ErrClosed)
	require.ErrorIs(t, recv.Request.Wait(t.Context()), ErrClosed)
}

// A side that has given up refuses a later request of the other, which then need not wait
// for its own time-out.
func TestLateRequestIsRefused(t *testing.T) {
	t.Parallel()
	ctx := testutil.Context(t, testutil.Limit)
	es := open(t, 2, "tcp")
	mems, keys := share(t, es, 4096)
	es[0].bringup.SetupTimeout = time.Nanosecond
	es[1].bringup.SetupTimeout = time.Hour
	err := es[0].Peer(1).Put(keys[1].At(0), mems[0].Slice(0, 8)).Wait(ctx)
	require.ErrorIs(t, err, ErrNoConnection)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	err = es[1].Peer(0).Put(keys[0].At(0), mems[1].Slice(0, 8)).Wait(ctx)
	require.ErrorIs(t, err, ErrNoConnection)
	require.ErrorContains(t, err, "rank 0: ")
}

// Without its wire-up server, a job continues with its existing connections.
func TestServerGoneBeforeFirstUse(t *testing.T) {
	t.Parallel()
	ctx := testutil.Context(t, testutil.Limit)
	srv, config := rendezvousServer(t, wireup.ServerConfig{Size: 3}, "shm")
	es := openAll(t, 3, config, func(*Config) {})
	mems, keys := share(t, es, 4096)
	require.NoError(t, es[0].Peer(1).Put(keys[1].At(0), mems[0].Slice(0, 8)).Wait(ctx))
	require.NoError(t, srv.Close())
	<-es[0].job.Done()
	require.NoError(t, es[0].Peer(1).Put(keys[1].At(0), mems[0].Slice(0, 8)).Wait(ctx))
	err := es[0].Peer(2).Put(keys[2].At(0), mems[0].Slice(0, 8)).Wait(ctx)
	require.True(t, errors.Is(err, ErrNoConnection) && errors.Is(err, ErrServerGone), "%v", err)
}
