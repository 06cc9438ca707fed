package bringup

import (
	"context"
	"encoding/json"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/links"
	"github.com/seed33544411/rma/internal/testutil"
	"github.com/seed33544411/rma/logp"
	"github.com/seed33544411/rma/sampling"
)

// publisher is a job in which the other rank has published a value.
type publisher struct {
	*recorder
	val []byte
}

func (j publisher) Get(context.Context, int, string) ([]byte, error) { return j.val, nil }

// What the peer has published about a path may be handled before this side has looked for figures
// of its class. It counts nevertheless.
func TestPublishedFiguresStay(t *testing.T) {
	r := newRailRig(t, 1)
	n, l := r.n, r.n.c.d.links
	near := &figures{Up: &logp.Params{}, Down: &logp.Params{}, Class: sampling.SharedL2}
	far := figures{Up: &logp.Params{}, Down: &logp.Params{}, Class: sampling.Sockets}
	b, err := json.Marshal(published{Version: publishedVersion, figures: far})
	require.NoError(t, err)
	l.job, l.hosts, l.calibrated = publisher{r.job, b}, make([]links.Offer, 2), make(chan struct{})
	l.paths.open([]*figures{near, near})
	l.paths.add(0, near)
	r.prog.Do(func() { n.ep, err = l.open[0].NewEndpoint(fabric.EndpointOptions{}) })
	require.NoError(t, err)
	t.Cleanup(func() {
		r.prog.Do(func() { err = n.ep.Close() })
		require.NoError(t, err)
	})
	r.peer.mine, err = l.open[0].Alloc(8, fabric.AccessAll)
	require.NoError(t, err)
	close(l.calibrated)
	close(n.done)
	n.Go(func() { n.follow("") })
	for range 1000 { // it may run now
		runtime.Gosched()
	}
	n.survey()
	testutil.Eventually(t, testutil.Limit, func() bool { return l.paths.path(0, false).Of == sampling.Sockets }, "figures of the peer")
}
