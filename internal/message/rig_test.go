package message

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/linktest"
	"github.com/seed33544411/rma/internal/testutil"
	"github.com/seed33544411/rma/logp"
)

func TestMain(m *testing.M) { testutil.Main(m) }

type opener = linktest.Opener

var (
	two       = linktest.Two
	simLinks  = linktest.Sim
	realLinks = linktest.Real()
)

// policies are the model's choice and what overrides it.
var policies = map[string]logp.Policy{
	"auto":    {},
	"eager":   {Forced: true, Mode: logp.Eager},
	"gather":  {Forced: true, Mode: logp.Gather},
	"scatter": {Forced: true, Mode: logp.Scatter},
	"table":   {Table: []logp.Rule{{MaxSize: 100, MaxCount: 2, Mode: logp.Eager}, {MaxSize: 3000, Mode: logp.Gather}, {Mode: logp.Scatter}}},
}

// side is one end: a link, its endpoint, and the channel on it.
type side struct {
	link fabric.Link
	ep   fabric.Endpoint
	ch   *Channel
	reg  fabric.Region
	cs   [16]fabric.Completion
}

func (s *side) poll() {
	n := s.link.Poll(s.cs[:])
	for i := range s.cs[:n] {
		if c := &s.cs[i]; c.EP == 7 {
			s.ch.OnCompletion(c)
		}
	}
}

func (s *side) turn() error {
	s.poll()
	_, _, err := s.ch.Progress()
	return err
}

// pair joins two channels. Each side has mem bytes of registered memory.
func pair(tb testing.TB, open opener, mem int, oa, ob Options) (a, b *side) {
	la, lb := open(tb)
	a, b = &side{link: la}, &side{link: lb}
	for _, s := range []*side{a, b} {
		var err error
		s.reg, err = s.link.Alloc(max(mem, 64), fabric.AccessAll)
		require.NoError(tb, err)
		tb.Cleanup(func() { require.NoError(tb, s.reg.Close()) })
	}
	a.ep, b.ep = linktest.Join(tb, a.link, b.link, fabric.EndpointOptions{ID: 7})
	for s, o := range map[*side]Options{a: oa, b: ob} {
		var err error
		s.ch, err = Open(s.link, s.ep, o)
		require.NoError(tb, err)
	}
	require.NoError(tb, a.ch.Connect(b.ch.Setup()))
	require.NoError(tb, b.ch.Connect(a.ch.Setup()))
	tb.Cleanup(func() {
		require.NoError(tb, a.ep.Close())
		require.NoError(tb, b.ep.Close())
		for range 64 {
			a.poll()
			b.poll()
		}
		require.NoError(tb, a.ch.Close())
		require.NoError(tb, b.ch.Close())
	})
	return a, b
}

// note is a Completer that remembers.
type note struct {
	n     int
	tag   uint32
	size  int
	err   error
	after func()
}

func (n *note) Complete(tag uint32, size int, err error) {
	n.n++
	n.tag, n.size, n.err = tag, size, err
	if n.after != nil {
		n.after()
	}
}
