//go:build linux || darwin || freebsd

package tcp

import (
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/internal/softlink"
	"github.com/seed33544411/rma/internal/event"
)

// directMax is the number of endpoints up to which Poll reads every socket itself. A
// receive that finds nothing costs about as much as a call of epoll, which needs the
// receive as well if there is data: reading directly is faster for one or two sockets and
// slower from about three.
const directMax = 2

// Open opens a link, which listens at once. cfg may be nil. The link has two goroutines,
// one that accepts connections and one that checks for silent hosts, and with Config.Resume or
// Config.Rail on Linux a third that hears of interfaces that go down and come up; Close ends them.
func Open(cfg *Config) (fabric.Link, error) {
	c, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if c.Congestion, err = c.Congestion.check(); err != nil {
		return nil, fmt.Errorf("tcp: open: %w", fabric.Shortage(err))
	}
	l := &link{
		cfg:     c,
		met:     make(chan struct{}, 1),
		direct:  directMax,
		all:     map[*endpoint]struct{}{},
		byNonce: map[uint64]*endpoint{},
		regions: map[*region]struct{}{},
		up:      make(chan struct{}),
	}
	if c.Named {
		l.keys.Named = softlink.NewNames()
	}
	_, _ = rand.Read(l.nobody[:]) // never fails
	if l.waking, err = event.New(); err != nil {
		return nil, fmt.Errorf("tcp: open: %w", fabric.Shortage(err))
	}
	if err := l.poller.open(l.waking.FD()); err != nil {
		_ = l.waking.Close()
		return nil, fmt.Errorf("tcp: open: %w", fabric.Shortage(err))
	}
	if err := l.listen(); err != nil {
		l.closeFDs()
		return nil, err
	}
	return l, nil
}

func (l *link) closeFDs() {
	_ = l.poller.close()
	_ = l.waking.Close()
}

func (l *link) Name() string      { return "tcp" }
func (l *link) Caps() fabric.Caps { return linkCaps }
func (l *link) FD() int           { return l.poller.fd }

// NetworkUp implements fabric.Networked. Without Config.Resume and Config.Rail, or on another system than
// Linux, the channel is never closed.
func (l *link) NetworkUp() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.up
}

func (l *link) Close() error {
	if l.closed.Swap(true) {
		return nil
	}
	l.stop()
	closeListeners(l)
	l.pending.closeAll()
	for _, e := range endpoints(l) {
		_ = e.Close()
		e.hangUp()
		e.release()
	}
	l.wg.Wait()
	l.mu.Lock()
	open := make([]*region, 0, len(l.regions))
	for r := range l.regions {
		open = append(open, r)
	}
	l.mu.Unlock()
	var errs []error
	if len(open) > 0 {
		errs = append(errs, fmt.Errorf("tcp: close: %w: %d", fabric.ErrRegionsOpen, len(open)))
	}
	for _, r := range open {
		errs = append(errs, r.Close())
	}
	l.ready = readyList{}
	l.closeFDs()
	return errors.Join(errs...)
}
