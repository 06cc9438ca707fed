package links

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/seed33544411/rma/fabric"
)

// Job is the part of *wireup.Job that Connect needs.
type Job interface {
	Rank() int
	Put(ctx context.Context, key string, val []byte) error
	Get(ctx context.Context, rank int, key string) ([]byte, error)
}

// ConnectOptions configures Connect. The zero value is usable.
type ConnectOptions struct {
	fabric.EndpointOptions

	// Tag distinguishes several connections of one pair over one link. Both sides pass the
	// same tag; each may be used once per job.
	Tag string

	// Own runs its argument as the owner of the link (see package fabric): endpoints are
	// closed there if connecting fails. Nil calls it at once, for callers that own the link
	// or do not poll it meanwhile.
	Own func(func())
}

func (o *ConnectOptions) close(ep fabric.Endpoint) {
	if o.Own == nil {
		ep.Close()
		return
	}
	o.Own(func() { ep.Close() })
}

// Connect creates an endpoint of l that is connected with the one that rank peer creates by
// the same call. Both sides must call it; it returns when this side may post. The addresses
// are exchanged through the job.
func Connect(ctx context.Context, job Job, l fabric.Link, peer int, o ConnectOptions) (fabric.Endpoint, error) {
	fail := func(err error) (fabric.Endpoint, error) {
		return nil, fmt.Errorf("links: connect rank %d with rank %d over %s: %w", job.Rank(), peer, l.Name(), err)
	}
	if peer == job.Rank() {
		return fail(errors.New("own rank: use Loopback"))
	}
	swap := func(what string, mine []byte) ([]byte, error) {
		key := func(to int) string { return fmt.Sprintf("%s/%s/%s/%d", what, l.Name(), o.Tag, to) }
		if err := job.Put(ctx, key(peer), mine); err != nil {
			return nil, err
		}
		return job.Get(ctx, peer, key(job.Rank()))
	}
	ep, err := Join(ctx, l, o,
		func(mine []byte) ([]byte, error) { return swap("ep", mine) },
		func() error { _, err := swap("ep/ready", nil); return err })
	if err != nil {
		return fail(err)
	}
	return ep, nil
}

// Join creates an endpoint of l that is connected with the one that another process creates
// by the same call. swap sends this endpoint's address to that process and returns its
// address, which is not trusted. ready tells that process that this side is connected, and
// waits until it has told the same; Join calls it if the link does not wait by itself
// (fabric.Caps.ConnectsAlone). Join returns when this side may post.
func Join(ctx context.Context, l fabric.Link, o ConnectOptions, swap func(mine []byte) ([]byte, error), ready func() error) (fabric.Endpoint, error) {
	ep, err := l.NewEndpoint(o.EndpointOptions)
	if err != nil {
		return nil, err
	}
	theirs, err := swap(ep.Address())
	if err == nil {
		err = ep.Connect(ctx, theirs)
	}
	if err == nil && l.Caps().ConnectsAlone {
		err = ready()
	}
	if err != nil {
		o.close(ep)
		return nil, err
	}
	return o.settle(ep), nil
}

// settle returns the endpoint to use in the place of ep, which is connected.
func (o *ConnectOptions) settle(ep fabric.Endpoint) fabric.Endpoint {
	ep, unused := fabric.Settle(ep)
	if unused != nil {
		o.close(unused)
	}
	return ep
}

// Loopback creates two endpoints of l that are connected with each other: requests posted
// on one have this process as their target. The second has the ID idB.
func Loopback(ctx context.Context, l fabric.Link, o ConnectOptions, idB uint32) (ea, eb fabric.Endpoint, err error) {
	o.Final = true
	b := o.EndpointOptions
	b.ID = idB
	if ea, err = l.NewEndpoint(o.EndpointOptions); err != nil {
		return nil, nil, fmt.Errorf("links: loopback over %s: %w", l.Name(), err)
	}
	if eb, err = l.NewEndpoint(b); err == nil {
		aa, ab := ea.Address(), eb.Address()
		var g errgroup.Group
		g.Go(func() error { return ea.Connect(ctx, ab) })
		g.Go(func() error { return eb.Connect(ctx, aa) })
		if err = g.Wait(); err == nil {
			return o.settle(ea), o.settle(eb), nil
		}
		o.close(eb)
	}
	o.close(ea)
	return nil, nil, fmt.Errorf("links: loopback over %s: %w", l.Name(), err)
}
