package host

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/sim"
)

// forgetful breaks one kind of request.
type forgetful struct {
	fabric.Link
	change func(w *fabric.WR)
}

type forgetfulEP struct {
	fabric.Endpoint
	l *forgetful
}

func (l *forgetful) NewEndpoint(o fabric.EndpointOptions) (fabric.Endpoint, error) {
	e, err := l.Link.NewEndpoint(o)
	return &forgetfulEP{e, l}, err
}

func (e *forgetfulEP) Post(ws []fabric.WR) (int, error) {
	e.l.change(&ws[0])
	return e.Endpoint.Post(ws)
}

// A device that works passes; one that breaks a kind of request fails the check of that
// kind.
func TestCheckDevice(t *testing.T) {
	t.Parallel()
	failed := func(change func(w *fabric.WR)) (names []string) {
		net := sim.NewNetwork(sim.Options{Seed: 1})
		r := CheckDevice(func() (fabric.Link, string, error) {
			l, err := net.NewLink()
			return &forgetful{l, change}, "a simulated link", err
		})
		require.Equal(t, "a simulated link", r.Choice)
		require.NotZero(t, r.Caps.MaxSGE)
		require.Len(t, r.Checks, 6)
		for _, f := range r.Checks {
			if f.Status == Fail {
				names = append(names, f.Check)
				require.NotEmpty(t, f.Found)
			}
		}
		return names
	}
	require.Empty(t, failed(func(*fabric.WR) {}))
	require.Contains(t, failed(func(w *fabric.WR) {
		if len(w.Local) > 1 {
			w.Local = w.Local[:1]
		}
	}), "pieces")
	require.Contains(t, failed(func(w *fabric.WR) { w.Imm++ }), "notification")
	require.Contains(t, failed(func(w *fabric.WR) { w.Operand++ }), "atomics")
	require.Contains(t, failed(func(w *fabric.WR) {
		if w.Op == fabric.OpWrite && w.Len() == 5000 {
			w.Local[0].Len--
		}
	}), "write and read")
}

func TestCheckDeviceThatDoesNotOpen(t *testing.T) {
	t.Parallel()
	r := CheckDevice(func() (fabric.Link, string, error) { return nil, "", errors.New("no device here") })
	require.True(t, Failed(r.Checks))
	require.Contains(t, r.Checks[0].Found, "no device here")
}
