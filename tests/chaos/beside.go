//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed33544411/rma"
)

// lies reports whether one side of operations with that rank is a mutant.
func (k *rank) lies(peer int) bool {
	return k.Mutant > 0 && peer >= 0 && (k.Lies || peer == k.eng.Size()-1)
}

// openBesideMutant is open for a job whose last rank is a mutant: the others give it the
// key of memory that only it uses, and exchange the keys of their own memory among
// themselves.
func (k *rank) openBesideMutant() error {
	if k.Lies {
		if err := mutate(k.Seed, k.Mutant, &k.changes); err != nil {
			return err
		}
	}
	var err error
	if k.eng, err = rma.Open(k.ctx, nil); err != nil {
		return err
	}
	n, me := k.eng.Size(), k.eng.Rank()
	k.guard = &guards{}
	bait := new(rma.Region)
	for _, m := range []**rma.Region{&k.mem, &bait, &k.src} {
		if err := k.guard.region(k.eng); err != nil {
			return err
		}
		if *m, err = k.eng.Alloc(n * k.slot()); err != nil {
			return err
		}
	}
	if err := k.guard.region(k.eng); err != nil {
		return err
	}
	k.fillOwn()
	if k.keys, err = rma.AllGatherKeys(k.ctx, k.eng, bait); err != nil || me == n-1 {
		return err
	}
	var g errgroup.Group
	for r := range n - 1 {
		if r == me {
			k.keys[r] = k.mem.Key()
			continue
		}
		g.Go(func() error {
			sent := k.eng.Peer(r).SendTag(tagKey, k.mem.Key().Append(nil))
			buf := make([]byte, 4096)
			_, size, err := k.eng.Peer(r).RecvTag(tagKey, buf).WaitTag(k.ctx)
			if err == nil {
				err = k.keys[r].UnmarshalBinary(buf[:size])
			}
			return errors.Join(err, sent.Wait(k.ctx))
		})
	}
	return g.Wait()
}

// again records the result of an operation beside a mutant, and continues with a new
// connection.
func (k *rank) again(op string, p *rma.Peer, err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	what := kind(err)
	k.say(event{Ev: "count", Op: "beside a mutant: " + what, N: 1})
	if what == "untyped" && !k.Lies {
		k.bad(typed, "%s with rank %d: %v", op, p.Rank(), err)
	}
	ctx, cancel := context.WithTimeout(k.ctx, 5*time.Second)
	defer cancel()
	_ = p.Reset(ctx)
	select {
	case <-k.ctx.Done():
	case <-time.After(5 * time.Millisecond):
	}
}

// silent reports whether the only cause of an error of Engine.Close is that a mutant did
// not acknowledge the last messages.
func (k *rank) silent(err error) bool {
	var peer *rma.PeerError
	return k.Mutant > 0 && errors.Is(err, rma.ErrUnconfirmed) && errors.As(err, &peer) &&
		err.Error() == fmt.Sprintf("rma: close: %v", peer) && peer.Rank == k.eng.Size()-1
}

// guards are memory that no rank may write to: regions whose keys no rank has, and the
// bytes before and behind the buffers of receives. A nil value guards nothing.
type guards struct {
	mu    sync.Mutex
	parts [][]byte
	held  []*rma.Region
}

const guardByte = 0xa5

func (g *guards) add(b []byte) {
	for i := range b {
		b[i] = guardByte
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.parts = append(g.parts, b)
}

// region allocates a guarded region, between regions allocated before and after.
func (g *guards) region(e *rma.Engine) error {
	r, err := e.Alloc(64 << 10)
	if err == nil {
		g.held = append(g.held, r)
		g.add(r.Bytes())
	}
	return err
}

// fence returns n bytes between two guards.
func (g *guards) fence(n int) []byte {
	if g == nil {
		return make([]byte, n)
	}
	const width = 4096
	all := make([]byte, n+2*width)
	g.add(all[:width])
	g.add(all[width+n:])
	return all[width:][:n:n]
}

// check verifies that no guard has changed.
func (g *guards) check(k *rank) {
	if g == nil {
		return
	}
	clean := bytes.Repeat([]byte{guardByte}, 64<<10)
	for i, p := range g.parts {
		k.held(untouched)
		if !bytes.Equal(p, clean[:len(p)]) {
			at := slices.IndexFunc(p, func(b byte) bool { return b != guardByte })
			k.bad(untouched, "guard %d of %d bytes was written to at %d: %s", i, len(p), at, fmt.Sprintf("% x", p[at:min(at+64, len(p))]))
		}
	}
}
