package ibv

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/testutil"
	"github.com/seed33544411/rma/verbs"
)

// What a link makes of asynchronous events, which rdma_rxe does not raise: the endpoints that an event concerns go
// down, with what is in flight, and a device that is gone connects no others. All can be closed.
func TestEvents(t *testing.T) {
	for _, c := range []struct {
		name   string
		event  func(a *side) verbs.AsyncEvent
		status fabric.Status // StatusOK: the endpoint stays
		gone   bool
	}{
		{"device", func(*side) verbs.AsyncEvent { return verbs.AsyncEvent{Type: verbs.EventDeviceFatal} }, fabric.StatusUnknown, true},
		{"completion queue", func(*side) verbs.AsyncEvent { return verbs.AsyncEvent{Type: verbs.EventCQErr} }, fabric.StatusUnknown, false},
		{"refused request", func(a *side) verbs.AsyncEvent {
			return verbs.AsyncEvent{Type: verbs.EventQPAccessErr, QPN: a.ep.qp.Num()}
		}, fabric.StatusRemoteInvalid, false},
		{"another queue pair", func(a *side) verbs.AsyncEvent {
			return verbs.AsyncEvent{Type: verbs.EventQPFatal, QPN: a.ep.qp.Num() + 1}
		}, fabric.StatusOK, false},
		{"port, without another", func(a *side) verbs.AsyncEvent { // without another port the endpoint waits
			return verbs.AsyncEvent{Type: verbs.EventPortErr, Port: a.l.port}
		}, fabric.StatusOK, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := pair(t, fabric.EndpointOptions{PeerTimeout: testutil.Limit})
			a.l.happened(&a.l.adapter, c.event(a))
			if c.gone {
				require.ErrorIs(t, a.l.Usable(), fabric.ErrDeviceGone)
			} else {
				require.NoError(t, a.l.Usable())
			}
			if c.status == fabric.StatusOK {
				posts(t, a, a.write(b, 8, fabric.FlagSignaled))
				require.NoError(t, a.wait(b)[0].Err())
				return
			}
			got := a.wait(b)
			require.Len(t, got, 1)
			require.Equal(t, fabric.OpDown, got[0].Op)
			require.Equal(t, c.status, got[0].Status)
			_, err := a.ep.Post([]fabric.WR{a.write(b, 8, fabric.FlagSignaled)})
			require.ErrorIs(t, err, fabric.ErrDown)
			require.NoError(t, a.ep.Close())
		})
	}
}
