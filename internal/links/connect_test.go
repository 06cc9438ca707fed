package links

import (
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/testutil"
	"github.com/seed33544411/rma/internal/wireup"
)

func TestMain(m *testing.M) { testutil.Main(m) }

// jobs joins n ranks of one job in this process.
func jobs(t *testing.T, n int) []*wireup.Job {
	ln, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	require.NoError(t, err)
	srv, err := wireup.Serve(t.Context(), ln, wireup.ServerConfig{Size: n})
	require.NoError(t, err)
	t.Cleanup(func() { srv.Close() })
	var js []*wireup.Job
	for r := range n {
		j, err := wireup.Join(t.Context(), wireup.Config{Rank: r, Size: n, Root: "unix:" + ln.Addr().String()})
		require.NoError(t, err)
		t.Cleanup(func() { j.Close() })
		js = append(js, j)
	}
	return js
}

// polled opens a link and polls it; own excludes the polls.
func polled(t *testing.T, name string) (l fabric.Link, own func(func())) {
	l, err := Open(name, Options{})
	require.NoError(t, err)
	var mu sync.Mutex
	own = func(f func()) { mu.Lock(); defer mu.Unlock(); f() }
	var stop atomic.Bool
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		cs := make([]fabric.Completion, 8)
		var sp cpu.Spinner
		for !stop.Load() {
			own(func() { l.Poll(cs) })
			sp.Wait()
		}
	}()
	t.Cleanup(func() {
		stop.Store(true)
		<-ended
		require.NoError(t, l.Close())
	})
	return l, own
}

var local = []string{"shm", "tcp"}

func TestLocalLinksAreUsable(t *testing.T) {
	require.ElementsMatch(t, Names(), testutil.Links)
	usable := map[string]bool{}
	for _, s := range Probe(Options{}) {
		usable[s.Name] = s.Usable
	}
	for _, name := range local {
		require.True(t, usable[name], name)
	}
}

func TestConnect(t *testing.T) {
	testutil.EachLinkAlone(t, func(t *testing.T, name string) {
		ctx := testutil.Context(t, 30*time.Second)
		js := jobs(t, 2)
		var ls [2]fabric.Link
		var own [2]func(func())
		for i := range ls {
			ls[i], own[i] = polled(t, name)
		}
		for _, tag := range []string{"", "second"} {
			var eps [2]fabric.Endpoint
			var g errgroup.Group
			for i := range eps {
				g.Go(func() (err error) {
					eps[i], err = Connect(ctx, js[i], ls[i], 1-i, ConnectOptions{Tag: tag, Own: own[i]})
					return err
				})
			}
			require.NoError(t, g.Wait())
			for _, ep := range eps {
				require.NoError(t, ep.Err())
			}
		}
		_, err := Connect(ctx, js[0], ls[0], 0, ConnectOptions{})
		require.Error(t, err)
		_, err = Connect(ctx, js[0], ls[0], 1, ConnectOptions{Own: own[0]})
		require.ErrorIs(t, err, wireup.ErrExists, "a tag is used once")
	})
}

// A peer that dies instead of connecting is an error, not a hang.
func TestConnectWithTheDead(t *testing.T) {
	testutil.EachLinkAlone(t, func(t *testing.T, name string) {
		js := jobs(t, 2)
		l, own := polled(t, name)
		require.NoError(t, js[1].Close())
		_, err := Connect(testutil.Context(t, 30*time.Second), js[0], l, 1, ConnectOptions{Own: own})
		require.ErrorIs(t, err, wireup.ErrPeerGone)
		// A peer that publishes nonsense as well.
		js = jobs(t, 2)
		require.NoError(t, js[1].Put(t.Context(), "ep/"+name+"//0", []byte("nonsense")))
		_, err = Connect(testutil.Context(t, 30*time.Second), js[0], l, 1, ConnectOptions{Own: own})
		require.ErrorIs(t, err, fabric.ErrBadAddress)
	})
}

func TestLoopback(t *testing.T) {
	testutil.EachLinkAlone(t, func(t *testing.T, name string) {
		l, err := Open(name, Options{})
		require.NoError(t, err)
		defer func() { require.NoError(t, l.Close()) }()
		a, b, err := Loopback(testutil.Context(t, 30*time.Second), l, ConnectOptions{EndpointOptions: fabric.EndpointOptions{ID: 1}}, 2)
		require.NoError(t, err)
		mem, err := l.Alloc(4096, fabric.AccessAll)
		require.NoError(t, err)
		testutil.Fill(mem.Bytes()[:100], 1, 0)
		n, err := a.Post([]fabric.WR{{
			ID: 7, Op: fabric.OpWrite, Flags: fabric.FlagSignaled, Local: []fabric.SGE{fabric.NewSGE(mem.Bytes()[:100], mem.LKey())},
			RemoteAddr: mem.Addr() + 1000, RKey: mem.Key().RKey,
		}})
		require.NoError(t, err)
		require.Equal(t, 1, n)
		cs := make([]fabric.Completion, 1)
		testutil.Eventually(t, 20*time.Second, func() bool { return l.Poll(cs) == 1 }, "completion")
		require.NoError(t, cs[0].Err())
		require.NoError(t, testutil.Verify(mem.Bytes()[1000:1100], 1, 0))
		require.NoError(t, a.Close())
		require.NoError(t, b.Close())
		require.NoError(t, mem.Close())
	})
}
