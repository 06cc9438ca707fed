package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/seed33544411/rma/internal/bench"
	"github.com/seed33544411/rma/internal/bench/choice"
	"github.com/seed33544411/rma/internal/links"
	"github.com/seed33544411/rma/internal/wireup"
)

// ServeOptions configures Serve.
type ServeOptions struct {
	Token []byte // shared secret with the clients, as among the ranks of a job (wireup.ErrNoToken)
	Once  bool   // return after one client

	// Hello is how long a client that has joined may take to send its request. Zero means
	// 15 s.
	Hello time.Duration

	Log   *slog.Logger
	Ready func(net.Addr) // called once, when clients may connect; may be nil
}

// Serve is the other host's half of a measurement: it listens on addr (host:port) and acts
// as rank 1 for one client after another until ctx ends. It logs the failure of a client
// and goes on, unless o.Once.
func Serve(ctx context.Context, addr string, o ServeOptions) error {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Hello == 0 {
		o.Hello = 15 * time.Second
	}
	for {
		var lc net.ListenConfig
		ln, err := lc.Listen(ctx, "tcp", addr)
		if err != nil {
			return fmt.Errorf("serve: %w", err)
		}
		// Use the same port for the next client, also if the system chose it.
		addr = ln.Addr().String()
		err = serveOne(ctx, ln, o)
		o.Ready = nil
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case o.Once, errors.Is(err, wireup.ErrEnvironment):
			return err
		case err != nil:
			o.Log.Warn("measurement failed", "err", err)
		}
	}
}

// serveOne acts as rank 1 of one job, and runs its wire-up server.
func serveOne(ctx context.Context, ln net.Listener, o ServeOptions) (err error) {
	insecure, err := wireup.InsecureFrom(os.Getenv)
	if err != nil {
		ln.Close()
		return err
	}
	client := make(chan struct{}) // closed when the client has joined
	joined := func(rank int) {
		if rank == 0 {
			close(client)
		}
	}
	srv, err := wireup.Serve(ctx, ln, wireup.ServerConfig{Size: 2, Token: o.Token, Insecure: insecure, Joined: joined, Log: o.Log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, srv.Close()) }()
	if o.Ready != nil {
		o.Ready(ln.Addr())
	}
	root := "tcp:" + reach(ln.Addr())
	job, err := wireup.Join(ctx, wireup.Config{Rank: 1, Size: 2, Root: root, Token: o.Token, Insecure: insecure})
	if err != nil {
		return err
	}
	select {
	case <-client:
	case <-ctx.Done():
		return errors.Join(context.Cause(ctx), job.Close())
	}
	err = attend(ctx, job, o.Hello, links.Options{Bind: bindFor(ln.Addr())})
	err = errors.Join(err, job.Close())
	if err == nil {
		// Rank 0 may still be reading this rank's last values from the server.
		select {
		case <-srv.Finished():
		case <-time.After(settle):
		case <-ctx.Done():
		}
	}
	return err
}

// reach returns the address at which this host itself reaches a listener: the loopback
// for a listener on all addresses.
func reach(a net.Addr) string {
	ap, err := netip.ParseAddrPort(a.String())
	if err != nil || !ap.Addr().IsUnspecified() {
		return a.String()
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), ap.Port()).String()
}

// bindFor returns the address for the tcp link's listener beside a wire-up server on a.
func bindFor(a net.Addr) netip.Addr {
	ap, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return netip.Addr{}
	}
	return ap.Addr().Unmap().WithZone("")
}

// Kinds of work between two hosts. Rank 0 publishes the kind under kindKey first.
const (
	kindKey    = "bench/kind"
	kindPoints = "points" // bench.Run
	kindPlogp  = "plogp"
	kindChoice = "choice" // choice.Run
)

// attend is rank 1's part of the work that rank 0 asks for.
func attend(ctx context.Context, job *wireup.Job, hello time.Duration, o links.Options) error {
	kind, err := wanted(ctx, job, hello)
	if err != nil {
		return fmt.Errorf("request of the client: %w", err)
	}
	switch string(kind) {
	case kindPoints:
		return points(bench.Request{}, nil)(ctx, job, o)
	case kindPlogp:
		return plogp(bench.PlogpRequest{}, new(*bench.PlogpResult))(ctx, job, o)
	case kindChoice:
		return choices(choice.Request{}, choice.Emit{})(ctx, job, o)
	}
	return fmt.Errorf("%w: %q", ErrKind, kind)
}

// wanted returns the kind of work that rank 0 publishes, or an error if it leaves before.
func wanted(ctx context.Context, job *wireup.Job, hello time.Duration) ([]byte, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ctx, stop := context.WithTimeout(ctx, hello)
	defer stop()
	over := make(chan struct{})
	defer close(over)
	go func() {
		select {
		case <-over:
		case <-job.Gone(0):
			cancel(fmt.Errorf("%w: rank 0 (%s)", wireup.ErrPeerGone, job.GoneReason(0)))
		}
	}()
	return job.Get(ctx, 0, kindKey)
}

// ErrKind reports a client that asks for a kind of work unknown to this release.
var ErrKind = errors.New("client of another release")

// Connect measures between this process, rank 0, and `serve` at addr.
func Connect(ctx context.Context, addr string, token []byte, req bench.Request, emit Emit) error {
	if err := req.Check(); err != nil {
		return err
	}
	return connect(ctx, addr, token, kindPoints, points(req, emit))
}

// PlogpConnect samples between this process and `serve` at addr.
func PlogpConnect(ctx context.Context, addr string, token []byte, req bench.PlogpRequest) (res *bench.PlogpResult, err error) {
	if err := req.Check(); err != nil {
		return nil, err
	}
	err = connect(ctx, addr, token, kindPlogp, plogp(req, &res))
	return res, err
}

// ChoiceConnect executes the request between this process and `serve` at addr.
func ChoiceConnect(ctx context.Context, addr string, token []byte, req choice.Request, emit choice.Emit) error {
	if err := req.Check(); err != nil {
		return err
	}
	return connect(ctx, addr, token, kindChoice, choices(req, emit))
}

// connect joins the job of `serve` at addr as rank 0, publishes the kind of work, and runs
// its part.
func connect(ctx context.Context, addr string, token []byte, kind string, mine part) (err error) {
	// The tcp link listens on the address from which this host reaches the other one.
	// Connecting the datagram socket sends nothing: it looks up the route.
	var d net.Dialer
	probe, err := d.DialContext(ctx, "udp", addr)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	bind := bindFor(probe.LocalAddr())
	if err := probe.Close(); err != nil {
		return err
	}
	insecure, err := wireup.InsecureFrom(os.Getenv)
	if err != nil {
		return err
	}
	job, err := wireup.Join(ctx, wireup.Config{Rank: 0, Size: 2, Root: "tcp:" + addr, Token: token, Insecure: insecure})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, job.Close()) }()
	if err := job.Put(ctx, kindKey, []byte(kind)); err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	return mine(ctx, job, links.Options{Bind: bind})
}
