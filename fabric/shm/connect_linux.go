package shm

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/offheap"
	"github.com/seed33544411/rma/internal/topo"
)

// Connect implements fabric.Endpoint. Setup path. Each side sends its control and channel
// segments with its hello.
func (ep *endpoint) Connect(ctx context.Context, peer []byte) error {
	a, err := parseAddress(peer)
	if err != nil {
		return err
	}
	switch {
	case a.host != ep.shake.addr.host:
		return fmt.Errorf("shm: connect: %w: it belongs to another host, or to this one before a reboot: use another link", fabric.ErrBadAddress)
	case a.token == ep.shake.addr.token:
		return fmt.Errorf("shm: connect: %w: it is the endpoint's own", fabric.ErrBadAddress)
	}
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if ep.shake.closing.Load() {
		return fmt.Errorf("shm: connect: %w", fabric.ErrClosed)
	}
	if ep.used {
		return errors.New("shm: connect: called before on this endpoint: make a new one")
	}
	ep.used = true
	if err := ep.join(ctx, &a); err != nil {
		ep.teardown()
		return fmt.Errorf("shm: connect: %w", fabric.Shortage(err))
	}
	return nil
}

// join runs the handshake and passes the endpoint to the owner.
func (ep *endpoint) join(ctx context.Context, a *address) (err error) {
	l := ep.link
	var fd int
	if ep.own, fd, err = newChannel(ep.depth); err != nil {
		return err
	}
	defer unix.Close(fd) // the peer has received a copy by then
	ep.hazard = l.newHazard(&ep.own)
	ep.shake.use = func(sock int) {
		ep.sock.set(sock)
		ep.hazard.meet(sock)
	}
	mine := hello{to: a.token, from: ep.shake.addr.token, nonceAddr: fabric.Addr(ep.own.mem) + nonceOff}
	theirs, fds, err := ep.shake.meet(ctx, a, func(sock int) error {
		return sendFDs(sock, mine.append(nil), l.ctlFD, fd)
	})
	defer closeFDs(fds)
	if err != nil {
		return err
	}
	ep.shake.close()
	if err := ep.attach(fds, theirs.nonceAddr); err != nil {
		return err
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return fabric.ErrClosed
	}
	ep.state.Store(stateUp)
	for _, s := range l.segments {
		s.announceTo(ep)
	}
	l.joined = append(l.joined, ep)
	l.countUsers()
	l.kick()
	return nil
}

// attach maps the segments of the peer's hello, and tries which methods work towards it.
func (ep *endpoint) attach(fds []int, nonceAddr uint64) (err error) {
	if ep.ctl, err = mapControl(fds[0]); err != nil {
		return err
	}
	if ep.peer, err = mapChannel(fds[1]); err != nil {
		return err
	}
	l, sock := ep.link, ep.sock.fd
	ep.in = frameReceiver{slots: ep.own.frames, own: ep.own.hdr}
	ep.out = frameSender{slots: ep.peer.frames, peer: ep.peer.hdr}
	ep.bell.peer, ep.bell.sock = ep.ctl.hdr, sock
	ep.mem.table = ep.ctl.table
	ep.mem.forget()
	ep.cpus = ep.ctl.hdr.allowedCPUs()
	ep.near = topo.Local(ep.cpus).Between(cpu.Allowed(), ep.cpus)
	ep.cma = cma{link: l, pid: ep.shake.pid, peer: ep.peer.hdr, sock: sock, aliveAt: cpu.Ticks()}
	ep.cma.why = "disabled by configuration"
	if !l.opts.DisableCMA {
		ep.cma.why = ep.cma.probe(nonceAddr)
	}
	ep.cma.works = ep.cma.why == ""
	ep.q.inline, err = offheap.Alloc(len(ep.q.reqs)*maxInline, offheap.Staging)
	return err
}

// Near implements fabric.Neighbour.
func (ep *endpoint) Near() fabric.Vicinity {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	v := fabric.Vicinity{Class: ep.near.String(), Private: "process_vm", Reason: ep.cma.why}
	if v.Reason != "" {
		v.Private = "bounce"
	}
	return v
}
