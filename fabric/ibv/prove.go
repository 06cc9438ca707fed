package ibv

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed33544411/rma/verbs"
)

// proofID is the ID of the request of prove, besides the tag: a slot that is not outstanding.
const proofID = 1<<32 - 1

// errNoProof says that the peer did not answer. It is no statement about the peer's process.
var errNoProof = errors.New("the peer does not answer over this port")

// prove waits until the peer's device has answered an empty request, which takes one packet, or such a request of the
// peer has arrived, which fails there if the answer does not. The side that is ready first sends in vain, and its device
// would repeat that only after its time-out. Called with mu held, which it releases meanwhile: the owner may close e.
func prove(ctx context.Context, e *endpoint) error {
	w := verbs.SendWR{ID: e.tag | proofID, Op: verbs.OpSend, Flags: verbs.SendSignaled} // of which both sides are told
	if n, err := e.qp.PostSend([]verbs.SendWR{w}); n != 1 {
		return fmt.Errorf("%w: %w", errNoProof, err)
	}
	if e.keeps.Load() {
		e.again.psn++
	}
	e.mu.Unlock()
	defer e.mu.Lock()
	t := time.NewTimer(2 * e.opt.PeerTimeout)
	defer t.Stop()
	for wait := pause; e.proof.Load() == 0 && e.state.Load() == stNew; wait = min(2*wait, readyPause) {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-t.C:
			return fmt.Errorf("%w: nothing completes", errNoProof)
		case <-time.After(wait):
		}
	}
	if s := verbs.WCStatus(e.proof.Load() - 1); s != verbs.WCSuccess {
		return fmt.Errorf("%w: %v", errNoProof, s)
	}
	return nil
}
