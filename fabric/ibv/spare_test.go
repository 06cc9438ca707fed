package ibv

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/testutil"
)

// sparesOf returns the spare port of both sides of a test: the last device.
func sparesOf(tb testing.TB) []Spare {
	_, b := need(tb)
	return []Spare{{Device: b}}
}

// moved returns two sides whose endpoints use spare ports.
func moved(t *testing.T) (a, b *side, p *post) {
	a, b = pairOf(t, Options{Resume: true, Spares: sparesOf(t)}, fabric.EndpointOptions{PeerTimeout: testutil.Limit})
	for range 2*letterNames + 7 { // more than letters have room for, on one side
		r, err := b.l.Register(b.mem.Bytes()[:64], fabric.AccessAll)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, r.Close()) })
	}
	p = newPost(t, a.ep, b.ep)
	p.fail(a, true)
	posts(t, a, a.write(b, 8, fabric.FlagSignaled))
	require.NoError(t, p.gets(t, a, b, 1)[0].Err())
	require.NotNil(t, a.ep.over)
	require.NotNil(t, b.ep.over)
	return a, b, p
}

// Memory that is registered when an endpoint uses a spare port already is named when it is used, once; memory
// that is not registered any more is refused.
func TestMemoryOfASparePort(t *testing.T) {
	a, b, p := moved(t)
	lost, _ := a.ep.Outages()
	mem, err := b.l.Alloc(4096, fabric.AccessAll)
	require.NoError(t, err)
	local, err := a.l.Alloc(4096, fabric.AccessAll)
	require.NoError(t, err)
	copy(local.Bytes(), "over another port")
	w := fabric.WR{Op: fabric.OpWrite, Flags: fabric.FlagSignaled, RemoteAddr: mem.Addr(), RKey: mem.Key().RKey, Local: []fabric.SGE{fabric.NewSGE(local.Bytes()[:17], local.LKey())}}
	for range 3 {
		posts(t, a, w)
		require.NoError(t, p.gets(t, a, b, 1)[0].Err())
	}
	require.Equal(t, "over another port", string(mem.Bytes()[:17]))
	now, _ := a.ep.Outages()
	require.Equal(t, lost+1, now)
	require.NoError(t, local.Close())
	require.NoError(t, mem.Close())
	w.Local[0] = a.write(b, 8, 0).Local[0]
	posts(t, a, w)
	got := p.gets(t, a, b, 2)
	require.Equal(t, fabric.StatusRemoteAccess, got[0].Status)
	require.Equal(t, fabric.OpDown, got[1].Op)
}

// An endpoint returns to the link's own port, later each time.
func TestReturnsToItsOwnPort(t *testing.T) {
	a, b, p := moved(t)
	require.False(t, a.ep.again.returns(), "not at once")
	for want := silentPause; want < 3*silentPause; want *= 2 {
		require.Equal(t, want, a.ep.again.away.pause)
		a.ep.again.away.until = time.Time{}
		a.l.idle = 0
		testutil.Eventually(t, testutil.Limit, func() bool {
			p.poll(a)
			p.poll(b)
			p.own.Lock()
			defer p.own.Unlock()
			_, why := a.ep.Outages()
			return a.ep.over == nil && why == nil
		}, "its own port")
		require.Nil(t, b.ep.over)
		posts(t, a, a.write(b, 8, fabric.FlagSignaled))
		require.NoError(t, p.gets(t, a, b, 1)[0].Err())
		p.fail(a, true)
		posts(t, a, a.write(b, 8, fabric.FlagSignaled))
		require.NoError(t, p.gets(t, a, b, 1)[0].Err())
	}
}

// Atomics that do not exclude those of the link's own device end the connection instead.
func TestAtomicsApart(t *testing.T) {
	a, b, p := moved(t)
	p.own.Lock()
	a.ep.apart = true
	p.own.Unlock()
	add := a.write(b, 8, fabric.FlagSignaled)
	add.Op, add.Operand = fabric.OpFetchAdd, 1
	n, err := a.ep.Post([]fabric.WR{a.write(b, 8, fabric.FlagSignaled), add})
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.NoError(t, p.gets(t, a, b, 1)[0].Err())
	_, err = a.ep.Post([]fabric.WR{add})
	require.ErrorIs(t, err, fabric.ErrDown)
	require.ErrorIs(t, err, fabric.ErrNotSupported)
	require.Equal(t, fabric.OpDown, p.gets(t, a, b, 1)[0].Op)
}
