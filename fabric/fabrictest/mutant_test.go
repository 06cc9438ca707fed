package fabrictest

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/sim"
	"github.com/seed33544411/rma/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

// A mutant is a link that breaks the contract in one way. The cases that it names must
// detect it. TestTransparentWrapperPasses and the links' own runs show that no case fails
// without cause.
type mutant struct {
	name  string
	opt   sim.Options
	hooks hooks
	by    []string // cases that must fail
}

// hooks replace methods of a link and its endpoints. Nil means unchanged.
type hooks struct {
	post     func(e *mutEP, ws []fabric.WR) (int, error)
	poll     func(l *mutLink, cs []fabric.Completion) int
	register func(l *mutLink, mem []byte, acc fabric.Access) (fabric.Region, error)
	arm      func(l *mutLink) (bool, error)
	fd       func(l *mutLink) int
	close    func(l *mutLink) error
	connect  func(e *mutEP, ctx context.Context, addr []byte) error
	epClose  func(e *mutEP) error
	caps     func(c *fabric.Caps)
	served   func(l *mutLink) uint32 // nil: the link is no fabric.Serving
}

type mutLink struct {
	fabric.Link
	h     *hooks
	n     int // event counter for the hooks
	last  fabric.Completion
	extra []fabric.Completion // reported by the next polls
	mu    sync.Mutex
	eps   []*mutEP
}

type mutEP struct {
	fabric.Endpoint
	l    *mutLink
	id   uint32
	n    int
	held []fabric.WR
}

// servingLink is a mutLink that is a fabric.Serving.
type servingLink struct{ *mutLink }

func (l servingLink) Served() uint32 { return l.h.served(l.mutLink) }

func (l *mutLink) NewEndpoint(o fabric.EndpointOptions) (fabric.Endpoint, error) {
	ep, err := l.Link.NewEndpoint(o)
	if err != nil {
		return nil, err
	}
	e := &mutEP{Endpoint: ep, l: l, id: o.ID}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.eps = append(l.eps, e)
	return e, nil
}

func (l *mutLink) Caps() fabric.Caps {
	c := l.Link.Caps()
	if l.h.caps != nil {
		l.h.caps(&c)
	}
	return c
}

func (l *mutLink) Poll(cs []fabric.Completion) int {
	k := 0
	for k < len(cs) && len(l.extra) > 0 {
		cs[k], l.extra = l.extra[0], l.extra[1:]
		k++
	}
	if k == len(cs) {
		return k
	}
	if l.h.poll != nil {
		return k + l.h.poll(l, cs[k:])
	}
	return k + l.Link.Poll(cs[k:])
}

func (l *mutLink) Register(mem []byte, acc fabric.Access) (fabric.Region, error) {
	if l.h.register != nil {
		return l.h.register(l, mem, acc)
	}
	return l.Link.Register(mem, acc)
}

func (l *mutLink) Arm() (bool, error) {
	if l.h.arm != nil {
		return l.h.arm(l)
	}
	return l.Link.Arm()
}

func (l *mutLink) FD() int {
	if l.h.fd != nil {
		return l.h.fd(l)
	}
	return l.Link.FD()
}

func (l *mutLink) Close() error {
	if l.h.close != nil {
		return l.h.close(l)
	}
	return l.Link.Close()
}

func (e *mutEP) Post(ws []fabric.WR) (int, error) {
	if e.l.h.post != nil {
		return e.l.h.post(e, ws)
	}
	return e.Endpoint.Post(ws)
}

func (e *mutEP) Connect(ctx context.Context, addr []byte) error {
	if e.l.h.connect != nil {
		return e.l.h.connect(e, ctx, addr)
	}
	return e.Endpoint.Connect(ctx, addr)
}

func (e *mutEP) Close() error {
	if e.l.h.epClose != nil {
		return e.l.h.epClose(e)
	}
	return e.Endpoint.Close()
}

// clone copies requests so that a hook may change them.
func clone(ws []fabric.WR) []fabric.WR {
	ws = slices.Clone(ws)
	for i := range ws {
		ws[i].Local = slices.Clone(ws[i].Local)
	}
	return ws
}

func mutFactory(opt sim.Options, h *hooks, deadline time.Duration) Factory {
	f := Factory{
		Open: func(tb testing.TB) (fabric.Link, fabric.Link) {
			n := sim.NewNetwork(opt)
			a, err := n.NewLink()
			require.NoError(tb, err)
			b, err := n.NewLink()
			require.NoError(tb, err)
			if h == nil {
				return a, b
			}
			ma, mb := &mutLink{Link: a, h: h}, &mutLink{Link: b, h: h}
			if h.served != nil {
				return servingLink{ma}, servingLink{mb}
			}
			return ma, mb
		},
		Kill:        func(_ testing.TB, l fabric.Link) { l.(*mutLink).Link.(*sim.Link).Kill() },
		IdleDown:    true,
		Slow:        testutil.RaceSlow,
		Deadline:    deadline,
		PeerTimeout: 20 * time.Millisecond,
	}
	return f
}

// The wrapper shared by all mutants breaks nothing by itself.
func TestTransparentWrapperPasses(t *testing.T) {
	Run(t, mutFactory(sim.Options{}, &hooks{}, 0))
}

func TestEveryMutantIsCaught(t *testing.T) {
	for _, m := range mutants() {
		if !slices.Contains(m.by, "NoAllocation") {
			t.Run(m.name, func(t *testing.T) { t.Parallel(); catch(t, m) })
		}
	}
}

// Allocations are counted over all goroutines, so nothing may run beside these mutants.
func TestEveryAllocationIsCaught(t *testing.T) {
	for _, m := range allocMutants {
		t.Run(m.name, func(t *testing.T) { catch(t, m) })
	}
}

func catch(t *testing.T, m mutant) {
	require.NotEmpty(t, m.by)
	for _, name := range m.by {
		i := slices.IndexFunc(Cases(), func(c Case) bool { return c.Name == name })
		require.GreaterOrEqual(t, i, 0, "no case called %s", name)
		r := record(t, name, func(tb testing.TB) { Cases()[i].Run(tb, mutFactory(m.opt, &m.hooks, 400*time.Millisecond)) })
		switch {
		case r.skipped:
			t.Errorf("%s was skipped: %v", name, r)
		case !r.failed:
			t.Errorf("%s passes although the link is broken", name)
		default:
			t.Logf("%s: %v", name, r)
		}
	}
}

// Every case must be able to fail: at least one mutant names it.
func TestEveryCaseCatchesSomething(t *testing.T) {
	named := map[string]bool{}
	for _, m := range mutants() {
		for _, n := range m.by {
			named[n] = true
		}
	}
	for _, c := range Cases() {
		if !named[c.Name] {
			t.Errorf("no mutant shows that %s can fail", c.Name)
		}
	}
}
