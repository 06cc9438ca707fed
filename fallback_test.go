package rma

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/fallback"
	"github.com/seed33544411/rma/fabric/sim"
	"github.com/seed33544411/rma/fabric/tcp"
	"github.com/seed33544411/rma/internal/testutil"
)

// cable is a simulated network of adapters whose ports and devices fail; ranks also reach each other over tcp.
type cable struct {
	net *sim.Network

	mu    sync.Mutex
	ports []*cablePort // in the order of opening
}

// cablePort is a link of a cable.
type cablePort struct {
	*sim.Link
	frozen atomic.Bool // nothing that is sent arrives
}

func (c *cable) open() (fabric.Link, error) {
	first, err := c.net.NewLink()
	if err != nil {
		return nil, err
	}
	p := &cablePort{Link: first}
	second, err := tcp.Open(&tcp.Config{Named: true})
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.ports = append(c.ports, p)
	c.mu.Unlock()
	return fallback.New(p, second)
}

// pull takes the wire away, without a word, or puts it back.
func (c *cable) pull(es []*Engine, away bool) {
	for i, p := range c.ports {
		p.frozen.Store(away)
		es[i].prog.Do(func() {
			if away {
				p.Link.Freeze()
			} else {
				p.Link.Thaw()
			}
		})
	}
}

func (p *cablePort) NewEndpoint(o fabric.EndpointOptions) (fabric.Endpoint, error) {
	ep, err := p.Link.NewEndpoint(o)
	return &cableEndpoint{ep, p, o.Prove}, err
}

// cableEndpoint proves the connection if it is to.
type cableEndpoint struct {
	fabric.Endpoint
	p     *cablePort
	prove bool
}

var errUnproved = errors.New("no answer")

func (e *cableEndpoint) Connect(ctx context.Context, peer []byte) error {
	if e.prove && e.p.frozen.Load() {
		return errUnproved
	}
	return e.Endpoint.Connect(ctx, peer)
}

// openCable opens two ranks on a cable of their own.
func openCable(t *testing.T) (*cable, []*Engine) {
	c := &cable{net: sim.NewNetwork(sim.Options{Caps: sim.CapsLike("ibv"), TargetFails: true})}
	name := device(t, "simcable", c.open)
	es := openWith(t, 2, "", func(o *Config) {
		o.Device, o.PeerTimeout, o.HangTimeout = name, testutil.Patience(500*time.Millisecond), time.Minute
	})
	if mem := es[0].links[0].(*fallback.Link).Link.(*cablePort); mem != c.ports[0] {
		c.ports[0], c.ports[1] = c.ports[1], c.ports[0]
	}
	return c, es
}

// carries checks the operations that a connection serves over any link.
func carries(t *testing.T, es []*Engine, mems []*Region, keys []Key, over string) {
	t.Helper()
	acquaint(t, es, mems, keys)
	together(t, es, func(ctx context.Context, e *Engine) error {
		p, mem := e.Peer(1-e.Rank()), mems[e.Rank()]
		for _, n := range []int{8, 1024, 100 << 10} {
			testutil.Fill(mem.Bytes()[:n], uint64(e.Rank()), 0)
			if err := p.Put(keys[p.Rank()].At(200<<10), mem.Slice(0, n)).Wait(ctx); err != nil {
				return fmt.Errorf("put %d: %w", n, err)
			}
			if err := p.Get(mem.Slice(100<<10, n), keys[p.Rank()].At(200<<10)).Wait(ctx); err != nil {
				return fmt.Errorf("get %d: %w", n, err)
			}
			if err := testutil.Verify(mem.Bytes()[100<<10:][:n], uint64(e.Rank()), 0); err != nil {
				return err
			}
		}
		if p.Link() != over {
			return fmt.Errorf("over %s", p.Link())
		}
		return errors.Join(e.Barrier(ctx), Accumulate(p, keys[p.Rank()].At(400<<10), Sum, []uint64{1}).Wait(ctx), e.Barrier(ctx))
	})
}

const cableMemory = 512 << 10

// A Reset after the first link was lost, in silence or because a port or a device fails, finds tcp. Keys stay; the
// next Reset finds the first link again.
func TestResetFindsTCP(t *testing.T) {
	for _, what := range []string{"silence", "here", "there", "gone here", "gone there", "gone twice"} {
		for _, both := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s %v", what, both), func(t *testing.T) {
				t.Parallel()
				testFindsTCP(t, what, both)
			})
		}
	}
}

func testFindsTCP(t *testing.T, what string, both bool) {
	c, es := openCable(t)
	mems, keys := share(t, es, cableMemory)
	carries(t, es, mems, keys, "sim")
	works(t, es, mems, keys)
	c.pull(es, true)
	port := map[string][]int{"here": {0}, "there": {1}, "gone here": {0}, "gone there": {1}, "gone twice": {0, 1}}[what]
	gone := len(what) > 4 && what[:4] == "gone"
	for _, i := range port {
		if c.ports[i].Fail(errors.New("the port is down")); gone {
			c.ports[i].Fail(fabric.ErrDeviceGone)
		}
	}
	ctx := testutil.Context(t, testutil.Limit)
	var pe *PeerError
	err := es[0].Peer(1).Put(keys[1].At(0), mems[0].Slice(0, 8)).Wait(ctx)
	require.ErrorAs(t, err, &pe)
	require.ErrorIs(t, err, ErrPeerGone)
	who := es[:1]
	if both {
		who = es
		require.Error(t, es[1].Peer(0).Put(keys[0].At(0), mems[1].Slice(0, 8)).Wait(ctx))
	}
	together(t, who, func(ctx context.Context, e *Engine) error { return e.Peer(1 - e.Rank()).Reset(ctx) })
	carries(t, es, mems, keys, "tcp")
	for r, e := range es {
		lost := len(port) > 1 || len(port) == 1 && port[0] != r // of the target
		_, err := e.Peer(1-r).FetchAdd(keys[1-r].At(8), 1).Wait(ctx)
		_, err32 := e.Peer(1-r).FetchAdd32(keys[1-r].At(8), 1).Wait(ctx)
		errAdd := e.Peer(1-r).Signal(keys[1-r].At(16), SignalAdd, 1).Wait(ctx)
		require.NoError(t, e.Peer(1-r).Signal(keys[1-r].At(24), SignalSet, 1).Wait(ctx))
		if gone && lost {
			require.NoError(t, errors.Join(err, err32, errAdd))
		} else {
			require.ErrorIs(t, err, fabric.ErrNotSupported)
			require.ErrorIs(t, err32, fabric.ErrNotSupported)
			require.ErrorIs(t, errAdd, fabric.ErrNotSupported)
		}
	}
	lateMems, lateKeys := share(t, es, cableMemory) // registered meanwhile
	carries(t, es, lateMems, lateKeys, "tcp")
	if gone {
		return
	}
	c.pull(es, false)
	for _, p := range c.ports {
		p.Fail(nil)
	}
	sunder(t, es)
	reconnect(t, es[0])
	carries(t, es, mems, keys, "sim")
	carries(t, es, lateMems, lateKeys, "sim")
	works(t, es, mems, keys)
}
