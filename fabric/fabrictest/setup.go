package fabrictest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/testutil"
)

var setupCases = []Case{{"SetupWhilePolling", setupWhilePolling}}

// newcomer is a connection that the setting-up goroutine made, on its way to
// the owners of the two sides.
type newcomer struct {
	ca, cb        *conn
	local, remote fabric.Region
	turn          int
	used          chan struct{} // closed when both owners have let go of it
}

// setupWhilePolling: regions and endpoints are made, connected and withdrawn by
// a third goroutine while the owners have traffic on an old connection.
func setupWhilePolling(r *rig) {
	ca, _ := r.pair(fabric.EndpointOptions{Depth: 8})
	const room = 4096
	local, remote := r.a.region(room, fabric.AccessAll), r.b.region(room, fabric.AccessAll)
	toA, toB := make(chan newcomer, 1), make(chan newcomer, 1)
	var stop atomic.Bool
	one := func(c *conn, w fabric.WR) error {
		w.Flags |= fabric.FlagSignaled
		if err := c.postOwn(w); err != nil {
			return err
		}
		if err := c.pollUntil("completion", func() bool { return len(c.side.done) > 0 }); err != nil {
			return err
		}
		d := c.side.done[0]
		c.side.done = c.side.done[:0]
		if d.EP != c.id || d.ID != w.ID || d.Status != fabric.StatusOK {
			return fmt.Errorf("request %d: %+v", w.ID, d)
		}
		return nil
	}
	ownerA := func() error {
		for i := uint64(0); !stop.Load(); i++ {
			runtime.Gosched() // three goroutines, perhaps one processor
			n := int(i*97) % room
			testutil.Fill(local.Bytes()[:n], i, 0)
			w := req(fabric.OpWrite, local, 0, n, remote, 0)
			w.ID = i
			if err := one(ca, w); err != nil {
				return err
			}
			if err := testutil.Verify(remote.Bytes()[:n], i, 0); err != nil {
				return err
			}
			select {
			case x := <-toA:
				testutil.Fill(x.local.Bytes(), uint64(x.turn), 0)
				w := req(fabric.OpWrite, x.local, 0, room, x.remote, 0)
				w.ID = 1 << 40
				err := one(x.ca, w)
				if err == nil {
					err = testutil.Verify(x.remote.Bytes(), uint64(x.turn), 0)
				}
				if e := x.ca.ep.Close(); err == nil {
					err = e
				}
				toB <- x
				if err != nil {
					return fmt.Errorf("newcomer %d: %w", x.turn, err)
				}
			default:
			}
		}
		return nil
	}
	ownerB := func() error {
		for !stop.Load() {
			runtime.Gosched()
			r.b.poll()
			for _, d := range r.b.done {
				if d.Op != fabric.OpDown {
					return fmt.Errorf("side b: %+v", d)
				}
			}
			r.b.done = r.b.done[:0]
			select {
			case x := <-toB:
				err := x.cb.ep.Close()
				close(x.used)
				if err != nil {
					return err
				}
			default:
			}
		}
		return nil
	}
	turns := r.times(60)
	memA, memB := testutil.Scratch(r, room), testutil.Scratch(r, room)
	setUp := func() error {
		for i := range turns {
			x := newcomer{turn: i, used: make(chan struct{})}
			var err error
			if x.local, err = r.a.link.Register(memA, fabric.AccessAll); err != nil {
				return err
			}
			if x.remote, err = r.b.link.Register(memB, fabric.AccessAll); err != nil {
				return err
			}
			extra, err := r.b.link.Alloc(room*(1+i%3), fabric.AccessAll)
			if err != nil {
				return err
			}
			for _, s := range []struct {
				s *side
				c **conn
			}{{r.a, &x.ca}, {r.b, &x.cb}} {
				ep, err := s.s.link.NewEndpoint(fabric.EndpointOptions{ID: uint32(1000 + i), Depth: 8})
				if err != nil {
					return err
				}
				*s.c = &conn{side: s.s, ep: ep, id: uint32(1000 + i)}
			}
			ctx, cancel := context.WithTimeout(context.Background(), r.f.Deadline)
			errs := make(chan error, 1)
			go func() { errs <- x.ca.ep.Connect(ctx, x.cb.ep.Address()) }()
			err = errors.Join(x.cb.ep.Connect(ctx, x.ca.ep.Address()), <-errs)
			cancel()
			if err != nil {
				return fmt.Errorf("connect: %w", err)
			}
			tm := time.NewTimer(r.f.Deadline)
			defer tm.Stop()
			select {
			case toA <- x:
			case <-tm.C:
				return errors.New("owner a does not take newcomers")
			}
			select {
			case <-x.used:
			case <-tm.C:
				return errors.New("a newcomer was not served in time")
			}
			if err := errors.Join(x.local.Close(), x.remote.Close(), extra.Close()); err != nil {
				return err
			}
		}
		return nil
	}
	finish := r.lastOut()
	done := make(chan error, 1)
	go func() {
		err := setUp()
		stop.Store(true)
		done <- err
	}()
	r.both(finish(r.a, ownerA), finish(r.b, ownerB))
	r.must(<-done, "setting up")
}
