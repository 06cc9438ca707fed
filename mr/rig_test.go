package mr

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/ibv"
	"github.com/seed33544411/rma/fabric/shm"
	"github.com/seed33544411/rma/fabric/sim"
	"github.com/seed33544411/rma/fabric/tcp"
	"github.com/seed33544411/rma/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

// on is the key as rail number n takes it.
func on(k *Key, n uint8) fabric.RemoteKey {
	return fabric.RemoteKey{Addr: k.Addr, Len: k.Len, RKey: k.RKeys[n]}
}

// pieceKey is what peers need to reach a piece of an arena.
func pieceKey(p Piece) (Key, error) {
	return p.slab.reg.key.Slice(uint64(p.slot)*uint64(p.slab.size), uint64(p.n))
}

// covers reports whether Acquire of mem would hit.
func covers(c *Cache, mem []byte, access fabric.Access) bool {
	e := c.find(fabric.Addr(mem), uint64(len(mem)))
	return e != nil && e.access&access == access
}

// rail is one link of the domain under test, and a peer that is connected.
type rail struct {
	tb        testing.TB // that opened it
	own, peer fabric.Link
	ep        fabric.Endpoint // of the peer: it reaches the domain's memory
	back      fabric.Endpoint
	local     fabric.Region // of the peer
	cs        [8]fabric.Completion
}

// openers are the links that tests run over; ibv is in TestIBV.
var openers = map[string]func(tb testing.TB) (a, b fabric.Link){
	"sim": func(tb testing.TB) (fabric.Link, fabric.Link) {
		n := sim.NewNetwork(sim.Options{})
		a, err := n.NewLink()
		require.NoError(tb, err)
		b, err := n.NewLink()
		require.NoError(tb, err)
		return a, b
	},
	"shm": func(tb testing.TB) (fabric.Link, fabric.Link) {
		a, err := shm.Open(shm.Options{})
		require.NoError(tb, err)
		b, err := shm.Open(shm.Options{})
		require.NoError(tb, err)
		return a, b
	},
	"tcp": func(tb testing.TB) (fabric.Link, fabric.Link) {
		a, err := tcp.Open(nil)
		require.NoError(tb, err)
		b, err := tcp.Open(nil)
		require.NoError(tb, err)
		return a, b
	},
}

// openIBV opens two links of RDMA devices.
func openIBV(tb testing.TB) (fabric.Link, fabric.Link) {
	devA, devB := testutil.RDMAPair(tb)
	a, err := ibv.Open(ibv.Options{Device: devA})
	require.NoError(tb, err)
	b, err := ibv.Open(ibv.Options{Device: devB})
	require.NoError(tb, err)
	return a, b
}

// open opens the links called names and a domain over them; the number of a
// rail is its index plus one. When the test ends no region may be left.
func open(tb testing.TB, names ...string) (*Domain, []*rail) {
	var rails []*rail
	var list []Rail
	for i, name := range names {
		r := &rail{tb: tb}
		if name == "ibv" {
			r.own, r.peer = openIBV(tb)
		} else {
			r.own, r.peer = openers[name](tb)
		}
		rails = append(rails, r)
		list = append(list, Rail{Link: r.own, Number: uint8(i + 1)})
		tb.Cleanup(func() {
			require.NoError(tb, r.own.Close(), "%s: a region is left", name)
			require.NoError(tb, r.peer.Close())
		})
	}
	d, err := NewDomain(list...)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, d.Close()); require.Zero(tb, d.Live()) })
	return d, rails
}

// eachLink runs f over each link alone and over all of them in one domain.
func eachLink(t *testing.T, f func(t *testing.T, d *Domain, rails []*rail)) {
	for name := range openers {
		t.Run(name, func(t *testing.T) {
			d, rails := open(t, name)
			f(t, d, rails)
		})
	}
	t.Run("all", func(t *testing.T) {
		d, rails := open(t, "tcp", "shm", "sim")
		f(t, d, rails)
	})
}

// connect gives the peer a (new) connection.
func (r *rail) connect(tb testing.TB) {
	var err error
	r.ep, err = r.peer.NewEndpoint(fabric.EndpointOptions{ID: 1})
	require.NoError(tb, err)
	r.back, err = r.own.NewEndpoint(fabric.EndpointOptions{ID: 2})
	require.NoError(tb, err)
	ctx := testutil.Context(tb, testutil.Limit)
	done := make(chan error, 1)
	to, from := r.back.Address(), r.ep.Address()
	go func() { done <- r.ep.Connect(ctx, to) }()
	require.NoError(tb, r.back.Connect(ctx, from))
	require.NoError(tb, <-done)
	if r.local == nil {
		r.local, err = r.peer.Alloc(1<<16, fabric.AccessAll)
		require.NoError(tb, err)
		r.tb.Cleanup(func() { require.NoError(r.tb, r.local.Close()) })
	}
}

// access lets the peer read or write n bytes of the domain's memory, from or to
// the start of its local memory.
func (r *rail) access(tb testing.TB, op fabric.Op, k fabric.RemoteKey, addr uint64, n int) error {
	if r.ep == nil || r.ep.Err() != nil || r.back.Err() != nil {
		r.connect(tb)
	}
	wr := []fabric.WR{{ID: 5, Op: op, Flags: fabric.FlagSignaled, RemoteAddr: addr, RKey: k.RKey,
		Local: []fabric.SGE{fabric.NewSGE(r.local.Bytes()[:n], r.local.LKey())}}}
	took, err := r.ep.Post(wr)
	require.NoError(tb, err)
	require.Equal(tb, 1, took)
	var res error
	testutil.Eventually(tb, testutil.Limit, func() bool {
		r.own.Poll(r.cs[:])
		for _, c := range r.cs[:r.peer.Poll(r.cs[:])] {
			if c.EP == 1 && c.ID == 5 {
				res = c.Err()
				return true
			}
		}
		return false
	}, "a completion")
	if res != nil {
		require.NoError(tb, r.ep.Close())
		require.NoError(tb, r.back.Close())
		r.ep = nil
	}
	return res
}
