package sampling

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/linktest"
	"github.com/seed33544411/rma/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

type opener = linktest.Opener

var (
	two       = linktest.Two
	simLinks  = linktest.Sim
	realLinks = linktest.Real()
)

const epID = 7

// join connects two endpoints on links a and b.
func join(tb testing.TB, a, b fabric.Link, o fabric.EndpointOptions) (fabric.Endpoint, fabric.Endpoint) {
	o.ID = epID
	return linktest.Join(tb, a, b, o)
}

// sessions opens and connects both sides; oa's is the first.
func sessions(tb testing.TB, open opener, oa, ob Options) (a, b *Session) {
	la, lb := open(tb)
	ea, eb := join(tb, la, lb, fabric.EndpointOptions{})
	oa.First, oa.EP, ob.EP = true, epID, epID
	a, err := Open(la, ea, oa)
	require.NoError(tb, err)
	b, err = Open(lb, eb, ob)
	require.NoError(tb, err)
	require.NoError(tb, a.Connect(b.Setup()))
	require.NoError(tb, b.Connect(a.Setup()))
	tb.Cleanup(func() { closeAll(tb, a, b) })
	return a, b
}

func closeAll(tb testing.TB, ss ...*Session) {
	for _, s := range ss {
		require.NoError(tb, s.p.EP.Close())
	}
	var cs [16]fabric.Completion
	for range 64 {
		for _, s := range ss {
			s.p.Link.Poll(cs[:])
		}
	}
	for _, s := range ss {
		require.NoError(tb, s.Close())
	}
}

type outcome struct {
	r   Result
	err error
}

// both runs the sides on goroutines of their own.
func both(ctx context.Context, a, b *Session) (oa, ob outcome) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		ob.r, ob.err = b.Run(ctx)
	}()
	oa.r, oa.err = a.Run(ctx)
	<-done
	return oa, ob
}

// agreed runs both sides and returns what they agree on.
func agreed(tb testing.TB, a, b *Session) (ra, rb Result) {
	tb.Helper()
	oa, ob := both(testutil.Context(tb, 60*time.Second), a, b)
	require.NoError(tb, errors.Join(oa.err, ob.err))
	require.Equal(tb, oa.r.Tables, ob.r.Tables, "both sides hold the same tables, to the last bit")
	require.Equal(tb, digest(tb, &oa.r.Tables), digest(tb, &ob.r.Tables))
	require.Equal(tb, oa.r.Source, ob.r.Source)
	require.Equal(tb, oa.r.Out(), ob.r.In())
	require.Equal(tb, oa.r.In(), ob.r.Out())
	return oa.r, ob.r
}

// digest is the digest of t as a profile has it.
func digest(tb testing.TB, t *Tables) Digest {
	b, err := marshalTables(t)
	require.NoError(tb, err)
	return digestOf(b)
}
