package sim

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
)

// world is two links with one connection and a region each, in one goroutine.
type world struct {
	t      *testing.T
	net    *Network
	a, b   *Link
	ea, eb fabric.Endpoint
	ra, rb fabric.Region
}

func newWorld(t *testing.T, o Options, eo fabric.EndpointOptions) *world {
	t.Helper()
	w := &world{t: t, net: NewNetwork(o)}
	w.a, w.b = w.link(), w.link()
	w.ra, w.rb = w.region(w.a), w.region(w.b)
	w.ea, w.eb = w.join(eo)
	return w
}

func (w *world) link() *Link {
	l, err := w.net.NewLink()
	require.NoError(w.t, err)
	w.t.Cleanup(func() { require.NoError(w.t, l.Close()) })
	return l
}

func (w *world) region(l *Link) fabric.Region {
	r, err := l.Alloc(4096, fabric.AccessAll)
	require.NoError(w.t, err)
	w.t.Cleanup(func() { require.NoError(w.t, r.Close()) })
	return r
}

func (w *world) endpoint(l *Link, o fabric.EndpointOptions) fabric.Endpoint {
	ep, err := l.NewEndpoint(o)
	require.NoError(w.t, err)
	return ep
}

func (w *world) join(o fabric.EndpointOptions) (fabric.Endpoint, fabric.Endpoint) {
	x, y := w.endpoint(w.a, o), w.endpoint(w.b, o)
	require.NoError(w.t, x.Connect(w.t.Context(), y.Address()))
	require.NoError(w.t, y.Connect(w.t.Context(), x.Address()))
	return x, y
}

// write returns a signalled write of [off, off+n) from ra to the same place of rb.
func (w *world) write(id uint64, off, n int, f fabric.Flags) fabric.WR {
	return fabric.WR{
		ID: id, Op: fabric.OpWrite, Flags: f | fabric.FlagSignaled,
		Local:      []fabric.SGE{fabric.NewSGE(w.ra.Bytes()[off:off+n], w.ra.LKey())},
		RemoteAddr: w.rb.Addr() + uint64(off), RKey: w.rb.Key().RKey,
	}
}

func (w *world) post(ep fabric.Endpoint, ws ...fabric.WR) {
	w.t.Helper()
	n, err := ep.Post(ws)
	require.NoError(w.t, err)
	require.Equal(w.t, len(ws), n)
}

// poll polls l once.
func (w *world) poll(l *Link) []fabric.Completion {
	cs := make([]fabric.Completion, 64)
	return cs[:l.Poll(cs)]
}

// pollFor polls l, at most a thousand times, until it has n completions.
func (w *world) pollFor(l *Link, n int) []fabric.Completion {
	w.t.Helper()
	var out []fabric.Completion
	for range 1000 {
		if out = append(out, w.poll(l)...); len(out) >= n {
			break
		}
	}
	require.Len(w.t, out, n)
	return out
}
