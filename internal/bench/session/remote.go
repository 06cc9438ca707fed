package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"github.com/seed33544411/rma/internal/bench"
	"github.com/seed33544411/rma/internal/links"
	"github.com/seed33544411/rma/internal/wireup"
)

// ServeOptions configures Serve.
type ServeOptions struct {
	Token []byte // clients must know it; empty admits everybody
	Once  bool   // return after one client
	Log   *slog.Logger
	Ready func(net.Addr) // called once, when clients may come; may be nil
}

// Serve is the other host's half of a measurement: it listens on addr
// (host:port) and plays rank 1 for one client after the other, until ctx ends.
// A client that fails is logged and does not end it, unless o.Once.
func Serve(ctx context.Context, addr string, o ServeOptions) error {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	for first := true; ; first = false {
		var lc net.ListenConfig
		ln, err := lc.Listen(ctx, "tcp", addr)
		if err != nil {
			return fmt.Errorf("serve: %w", err)
		}
		// The same port for the next client, also if it was chosen for us.
		addr = ln.Addr().String()
		if first && o.Ready != nil {
			o.Ready(ln.Addr())
		}
		err = serveOne(ctx, ln, o)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case o.Once:
			return err
		case err != nil:
			o.Log.Warn("measurement failed", "err", err)
		}
	}
}

// serveOne plays rank 1 of one job, which it also hosts.
func serveOne(ctx context.Context, ln net.Listener, o ServeOptions) (err error) {
	srv, err := wireup.Serve(ctx, ln, wireup.ServerConfig{Size: 2, Token: o.Token, Log: o.Log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, srv.Close()) }()
	root := "tcp:" + reach(ln.Addr())
	job, err := wireup.Join(ctx, wireup.Config{Rank: 1, Size: 2, Root: root, Token: o.Token, Timeout: -1})
	if err != nil {
		return err
	}
	err = measure(ctx, job, links.Options{Bind: bindFor(ln.Addr())}, bench.Request{}, nil)
	err = errors.Join(err, job.Close())
	if err == nil {
		// Rank 0 may still want what this rank said last.
		select {
		case <-srv.Finished():
		case <-time.After(settle):
		case <-ctx.Done():
		}
	}
	return err
}

// reach is how this host itself reaches a listener: one on all addresses is
// reached over the loopback.
func reach(a net.Addr) string {
	ap, err := netip.ParseAddrPort(a.String())
	if err != nil || !ap.Addr().IsUnspecified() {
		return a.String()
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), ap.Port()).String()
}

// bindFor is where the tcp link listens beside a rendezvous on a.
func bindFor(a net.Addr) netip.Addr {
	ap, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return netip.Addr{}
	}
	return ap.Addr().Unmap().WithZone("")
}

// Connect measures between this process, rank 0, and `serve` at addr.
func Connect(ctx context.Context, addr string, token []byte, req bench.Request, emit Emit) (err error) {
	if err := req.Check(); err != nil {
		return err
	}
	// The address from which this host reaches the other is where the tcp link
	// listens. The datagram socket only asks the routing table.
	var d net.Dialer
	probe, err := d.DialContext(ctx, "udp", addr)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	bind := bindFor(probe.LocalAddr())
	if err := probe.Close(); err != nil {
		return err
	}
	job, err := wireup.Join(ctx, wireup.Config{Rank: 0, Size: 2, Root: "tcp:" + addr, Token: token})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, job.Close()) }()
	return measure(ctx, job, links.Options{Bind: bind}, req, emit)
}
