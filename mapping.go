package rma

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/seed33544411/rma/fabric"
)

// ErrNotMapped says that memory is not mapped into this process: see Map.
var ErrNotMapped = errors.New("memory is not mapped into this process: use Put, Get and atomics")

// mapStep is the time after which Map looks whether its context has ended.
const mapStep = 10 * time.Millisecond

// Mapping is memory of another rank of this host, mapped into this process. Its methods may
// be called from any goroutine.
type Mapping struct {
	mem []byte
	of  *Peer

	mu      sync.Mutex
	release func() error // nil: closed
}

// Map returns memory of the peer for loads, stores and atomics of this process, without the
// engine. It works where PlaceOf reports Maps, for memory of Alloc and Window of another rank
// that gives peers all rights; otherwise, and if the region is closed, it fails with
// ErrNotMapped, and with ErrRemoteAccess as well if a right is missing. It connects the ranks,
// and waits until the memory has been announced to this process: as long as ctx, or
// Config.SetupTimeout if ctx has no deadline.
//
// The bytes have the atomicity and order of memory that processes share: use sync/atomic for
// words that the other side waits for. A store has no order to operations that are in
// flight, and does not wake a rank that sleeps until a word changes (AwaitUntil) or waits for
// a signal. The memory stays mapped until Mapping.Close, also after the peer has closed its
// region or has ended: stores are lost then, and the system cannot reuse the memory.
func Map(ctx context.Context, p *Peer, s Span) (*Mapping, error) {
	const all = fabric.AccessRemoteRead | fabric.AccessRemoteWrite | fabric.AccessRemoteAtomic
	fail := func(err error) (*Mapping, error) { return nil, &PeerError{Rank: p.rank, Op: "map", Err: err} }
	addr, rkey, err := p.reach(s.at, uint64(max(s.n, 0)), all)
	if s.n <= 0 && err == nil {
		err = ErrBounds
	}
	switch {
	case errors.Is(err, ErrRemoteAccess):
		err = fmt.Errorf("%w: %w", ErrNotMapped, err)
	case err == nil && (p.own || !PlaceOf(p).Maps):
		err = ErrNotMapped
	}
	if err != nil {
		return fail(err)
	}
	ctx, cancel := withSetupTimeout(ctx, p.eng)
	defer cancel()
	if err := p.GetBytes(nil, s.at).Wait(ctx); err != nil { // connects; a read of no bytes checks no key
		return nil, err
	}
	m, later := &Mapping{of: p}, true
	for later && ctx.Err() == nil {
		await(p.eng.prog, mapStep, func() bool {
			if later = false; p.eng.closed.Load() {
				err = ErrClosed
			} else if mapper, ok := p.eng.links[p.link].(fabric.Mapper); ok && p.ep != nil {
				m.mem, m.release, later = mapper.Map(p.ep, all, rkey, addr, s.n)
			}
			return !later
		})
	}
	switch {
	case err != nil:
		return fail(err)
	case m.mem == nil:
		return fail(errors.Join(ErrNotMapped, ctx.Err()))
	}
	return m, nil
}

// Bytes returns the memory. It must not be used after Close.
func (m *Mapping) Bytes() []byte { return m.mem }

// Close ends the use of the memory by this side. A second call has no effect.
func (m *Mapping) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.release == nil {
		return nil
	}
	release := m.release
	m.release = nil
	return release()
}
