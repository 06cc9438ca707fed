package bringup

import (
	"context"
	"slices"

	"github.com/seed33544411/rma/fabric"
)

// KeyResume is the key of the letters by which the endpoints of two ranks agree on another connection
// (fabric.Rejoiner): the number of the connection (4) and the letter.
const KeyResume = "ep/resume"

// maxLetters is the number of letters of the peer that may wait: those about two connections, and that its
// endpoint has ended.
const maxLetters = 5

// Rejoin has the endpoint, whose connection is lost, continue on another one. Any goroutine may call it;
// it does not wait.
func (n *Connection) Rejoin() { n.Go(n.rejoin) }

// rejoin lets the endpoint do what it has to, if anything.
func (n *Connection) rejoin() {
	n.rejoining.Lock()
	defer n.rejoining.Unlock()
	d := n.c.d
	select {
	case <-n.done:
	case <-n.life.Done():
		return
	}
	ep, is := n.ep.(fabric.Rejoiner)
	if !is {
		for len(n.letters) > 0 {
			<-n.letters
		}
		return
	}
	_ = ep.Rejoin(n.life, fabric.Courier{
		Own: func(f func()) { d.prog.Do(f); d.prog.Kick() },
		Send: func(ctx context.Context, b []byte) error {
			return d.links.job.Send(ctx, n.c.rank, KeyResume, append(n.Numbered(), b...))
		},
		Next: func(ctx context.Context) ([]byte, error) {
			select {
			case b := <-n.letters:
				return b, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		},
		Sent: func() bool { return len(n.letters) > 0 },
	}) // the endpoint reports why it is down
}

// toldLetter handles a letter of the peer's endpoint. It returns false if the peer violates the
// protocol. Under Dialer.mu.
func (n *Connection) toldLetter(b []byte) bool {
	if n.c.own || !n.requested || len(b) > fabric.MaxLetter {
		return false
	}
	select {
	case n.letters <- slices.Clone(b):
	default:
		return false
	}
	n.c.d.tasks.Go(n.Rejoin)
	return true
}
