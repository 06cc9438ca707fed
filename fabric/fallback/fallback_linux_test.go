package fallback

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/fabrictest"
	"github.com/seed33544411/rma/fabric/internal/fds"
	"github.com/seed33544411/rma/fabric/sim"
	"github.com/seed33544411/rma/fabric/tcp"
	"github.com/seed33544411/rma/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

var errUnplugged = errors.New("unplugged")

// served is a link all endpoints of which use the second link.
type served struct{ *Link }

func (l served) Caps() fabric.Caps {
	c := l.Link.Caps()
	c.TargetProgress = true
	return c
}

// two returns two links over a simulated one and tcp, and the simulated ones.
func two(tb testing.TB) (ls [2]*Link, firsts [2]*sim.Link) {
	n := sim.NewNetwork(sim.Options{Caps: sim.CapsLike("ibv"), TargetFails: true})
	for i := range ls {
		var err error
		firsts[i], err = n.NewLink()
		require.NoError(tb, err)
		second, err := tcp.Open(&tcp.Config{Named: true})
		require.NoError(tb, err)
		ls[i], err = New(firsts[i], second)
		require.NoError(tb, err)
	}
	return ls, firsts
}

// All promises hold over either link; regions have the keys of the first unless its device is gone.
func TestConformance(t *testing.T) {
	t.Run("first", func(t *testing.T) {
		fabrictest.Run(t, fabrictest.Factory{IdleDown: true, Open: func(tb testing.TB) (a, b fabric.Link) {
			ls, _ := two(tb)
			return ls[0], ls[1]
		}})
	})
	for name, why := range map[string]error{"second": errUnplugged, "gone": fabric.ErrDeviceGone} {
		t.Run(name, func(t *testing.T) {
			fabrictest.Run(t, fabrictest.Factory{IdleDown: true, Open: func(tb testing.TB) (a, b fabric.Link) {
				ls, firsts := two(tb)
				firsts[0].Fail(why)
				return served{ls[0]}, served{ls[1]}
			}})
		})
	}
}

// connect connects an endpoint of each link, and returns them, settled, or the errors.
func connect(t *testing.T, ls [2]*Link, o fabric.EndpointOptions) (eps [2]fabric.Endpoint, errs [2]error) {
	var addrs [2][]byte
	for i, l := range ls {
		ep, err := l.NewEndpoint(o)
		require.NoError(t, err)
		eps[i], addrs[i] = ep, ep.Address()
		require.LessOrEqual(t, len(addrs[i]), fabric.MaxAddress)
		_, err = ep.Post(make([]fabric.WR, 1))
		require.ErrorIs(t, err, fabric.ErrNotConnected)
	}
	ctx, done := testutil.Context(t, testutil.Limit), make(chan error, 1)
	go func() { done <- eps[1].Connect(ctx, addrs[0]) }()
	polls := make(chan struct{})
	go func() {
		defer close(polls)
		errs[0], errs[1] = eps[0].Connect(ctx, addrs[1]), <-done
	}()
	testutil.Eventually(t, testutil.Limit, func() bool {
		for _, l := range ls {
			l.Poll(make([]fabric.Completion, 4))
		}
		select {
		case <-polls:
			return true
		default:
			return false
		}
	}, "connect")
	for i := range eps {
		if errs[i] == nil {
			ep, unused := fabric.Settle(eps[i])
			if eps[i] = ep; unused != nil {
				require.NoError(t, unused.Close())
			}
		}
	}
	return eps, errs
}

// put writes through eps[0] to a key of the other side and returns the completion's status.
func put(t *testing.T, ls [2]*Link, ep fabric.Endpoint, from fabric.Region, to fabric.RemoteKey) fabric.Status {
	_, err := ep.Post([]fabric.WR{{Op: fabric.OpWrite, ID: 7, Flags: fabric.FlagSignaled, RKey: to.RKey, RemoteAddr: to.Addr,
		Local: []fabric.SGE{fabric.NewSGE(from.Bytes()[:8], from.LKey())}}})
	require.NoError(t, err)
	var c [1]fabric.Completion
	testutil.Eventually(t, testutil.Limit, func() bool {
		ls[1].Poll(make([]fabric.Completion, 4))
		return ls[0].Poll(c[:]) == 1 && c[0].ID == 7
	}, "completion")
	return c[0].Status
}

// An endpoint falls back, the next one returns; keys from before and from meanwhile work over both.
func TestKeysSurvive(t *testing.T) {
	ls, firsts := two(t)
	mine, err := ls[0].Alloc(64, fabric.AccessAll)
	require.NoError(t, err)
	theirs, err := ls[1].Alloc(64, fabric.AccessAll)
	require.NoError(t, err)
	for i, want := range []struct {
		why     [2]error
		second  bool
		over    string
		atomics bool // of this side at the other
	}{
		{over: "sim", atomics: true},
		{why: [2]error{errUnplugged, nil}, over: "tcp"},
		{why: [2]error{nil, errUnplugged}, over: "tcp"},
		{over: "sim", atomics: true},
		{second: true, over: "tcp"},
		{why: [2]error{nil, fabric.ErrDeviceGone}, over: "tcp", atomics: true}, // nobody uses that adapter
	} {
		for k := range firsts {
			firsts[k].Fail(want.why[k])
		}
		eps, errs := connect(t, ls, fabric.EndpointOptions{ID: uint32(i), Second: want.second})
		require.NoError(t, errors.Join(errs[:]...))
		over, atomics := ls[0].Over(eps[0])
		require.Equal(t, want.over, over.Name(), i)
		require.Equal(t, want.atomics, atomics, i)
		late, err := ls[1].Register(testutil.Scratch(t, 64), fabric.AccessAll)
		require.NoError(t, err)
		for _, r := range []fabric.Region{theirs, late} {
			mine.Bytes()[0] = byte(i + 1)
			require.Equal(t, fabric.StatusOK, put(t, ls, eps[0], mine, r.Key()), i)
			require.Equal(t, byte(i+1), r.Bytes()[0])
		}
		require.NoError(t, late.Close())
		require.Equal(t, fabric.StatusRemoteAccess, put(t, ls, eps[0], mine, late.Key()), i)
		for _, ep := range eps {
			require.NoError(t, ep.Close())
		}
	}
	firsts[1].Fail(nil)
	require.NoError(t, errors.Join(mine.Close(), theirs.Close(), ls[0].Close(), ls[1].Close()))
}

// silent is a link whose peer does not answer.
type silent struct{ *sim.Link }

func (l silent) NewEndpoint(o fabric.EndpointOptions) (fabric.Endpoint, error) {
	ep, err := l.Link.NewEndpoint(o)
	return silentEndpoint{ep}, err
}

type silentEndpoint struct{ fabric.Endpoint }

func (silentEndpoint) Connect(context.Context, []byte) error { return errUnplugged }

// A side over whose first link nobody answers says that the other may work; one without a second link, here or
// there, does not.
func TestOtherWay(t *testing.T) {
	ls, firsts := two(t)
	for i := range ls {
		ls[i].Link = silent{firsts[i]}
	}
	_, errs := connect(t, ls, fabric.EndpointOptions{})
	for _, err := range errs {
		require.ErrorIs(t, err, fabric.ErrOtherWay)
		require.ErrorIs(t, err, errUnplugged)
	}
	plain, err := New(silent{firsts[1]}, nil)
	require.NoError(t, err)
	_, errs = connect(t, [2]*Link{ls[0], plain}, fabric.EndpointOptions{ID: 1})
	for _, err := range errs {
		require.ErrorIs(t, err, errUnplugged)
		require.NotErrorIs(t, err, fabric.ErrOtherWay)
	}
	firsts[0].Fail(errUnplugged)
	_, errs = connect(t, [2]*Link{ls[0], plain}, fabric.EndpointOptions{ID: 2})
	for _, err := range errs {
		require.ErrorIs(t, err, fabric.ErrNotConnected)
	}
	require.NoError(t, errors.Join(ls[0].Close(), ls[1].Close()))
}

// The addresses of hostile peers are refused.
func TestBadAddresses(t *testing.T) {
	good := (&address{true, []byte("first"), []byte("second")}).append(nil)
	a, err := parseAddress(good)
	require.NoError(t, err)
	require.Equal(t, address{true, []byte("first"), []byte("second")}, a)
	for i := range addrHeader {
		_, err := parseAddress(good[:i])
		require.ErrorIs(t, err, fabric.ErrBadAddress)
		bad := append([]byte(nil), good...)
		bad[i] ^= 0x80
		_, err = parseAddress(bad)
		require.ErrorIs(t, err, fabric.ErrBadAddress, i)
	}
	_, err = parseAddress(append(good, make([]byte, fabric.MaxAddress)...))
	require.ErrorIs(t, err, fabric.ErrBadAddress)
}

// carrying is a link whose endpoint the second link carries.
type carrying struct {
	*sim.Link
	by      func(fabric.EndpointOptions) (fabric.Endpoint, error)
	ep      fabric.Endpoint
	atomics bool
	got     []fabric.Completion
}

const carrierID = 1 << 31

func (l *carrying) CarryOn(by func(fabric.EndpointOptions) (fabric.Endpoint, error)) { l.by = by }

func (l *carrying) Carries(ep fabric.Endpoint) (is, atomics bool) { return ep == l.ep, l.atomics }

func (l *carrying) Completed(c *fabric.Completion) bool {
	if c.EP != carrierID {
		return true
	}
	l.got = append(l.got, *c)
	c.EP = 7
	return c.Op == fabric.OpNotify
}

// Completions of carriers go to the first link, and what it makes of them to the caller.
func TestCarriers(t *testing.T) {
	ls, sims := two(t)
	var firsts [2]*carrying
	var eps [2]fabric.Endpoint
	for i, l := range ls {
		var err error
		firsts[i] = &carrying{Link: sims[i], atomics: i == 0}
		ls[i], err = New(firsts[i], l.second)
		require.NoError(t, err)
		require.NoError(t, fds.Close(l.fd)) // of the link that is not used
		eps[i], err = firsts[i].by(fabric.EndpointOptions{ID: carrierID})
		require.NoError(t, err)
		firsts[i].ep, err = ls[i].NewEndpoint(fabric.EndpointOptions{ID: 7})
		require.NoError(t, err)
		over, atomics := ls[i].Over(firsts[i].ep)
		require.Equal(t, "tcp", over.Name())
		require.Equal(t, firsts[i].atomics, atomics)
	}
	ctx, done := testutil.Context(t, testutil.Limit), make(chan error, 1)
	addrs := [2][]byte{eps[0].Address(), eps[1].Address()}
	go func() { done <- eps[1].Connect(ctx, addrs[0]) }()
	require.NoError(t, eps[0].Connect(ctx, addrs[1]))
	require.NoError(t, <-done)
	_, err := eps[0].Post([]fabric.WR{{Op: fabric.OpWrite, ID: 5, Flags: fabric.FlagSignaled | fabric.FlagNotify, Imm: 3}})
	require.NoError(t, err)
	var told []fabric.Completion
	testutil.Eventually(t, testutil.Limit, func() bool {
		var cs [4]fabric.Completion
		require.Zero(t, ls[0].Poll(cs[:]), "the first link has taken it")
		told = append(told, cs[:ls[1].Poll(cs[:])]...)
		return len(firsts[0].got) > 0 && len(told) > 0
	}, "both have a completion")
	require.Equal(t, []fabric.Completion{{ID: 5, EP: carrierID, Op: fabric.OpWrite}}, firsts[0].got)
	require.Equal(t, []fabric.Completion{{EP: 7, Op: fabric.OpNotify, Imm: 3}}, told)
	require.NoError(t, errors.Join(ls[0].Close(), ls[1].Close()))
}
