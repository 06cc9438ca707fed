package fabrictest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/testutil"
)

var connectCases = []Case{
	{"NotConnected", notConnected},
	{"BadAddress", badAddress},
	{"DamagedAddress", damagedAddress},
	{"UsedAddress", usedAddress},
	{"ConnectDeadline", connectDeadline},
}

func notConnected(r *rig) {
	c := r.a.endpoint(fabric.EndpointOptions{})
	n, err := c.ep.Post([]fabric.WR{{Op: fabric.OpWrite}})
	if n != 0 || !errors.Is(err, fabric.ErrNotConnected) {
		r.Fatalf("post before Connect: %d, %v; want ErrNotConnected", n, err)
	}
	if err := c.ep.Err(); err != nil {
		r.Fatalf("Err before Connect: %v", err)
	}
	r.idle()
	r.must(c.ep.Close(), "close")
	ctx, cancel := context.WithTimeout(context.Background(), r.f.Deadline)
	defer cancel()
	if err := c.ep.Connect(ctx, r.b.endpoint(fabric.EndpointOptions{}).ep.Address()); err == nil {
		r.Fatal("Connect of a closed endpoint succeeded")
	}
	r.idle()
}

// attempt connects c to addr within d and polls meanwhile. It fails the test if Connect
// exceeds its context's deadline by much.
func (r *rig) attempt(c *conn, addr []byte, d time.Duration, what string) error {
	r.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- c.ep.Connect(ctx, addr) }()
	var err error
	r.until("Connect with "+what, func() bool {
		select {
		case err = <-done:
			return true
		default:
			return false
		}
	})
	return err
}

func badAddress(r *rig) {
	peer := r.b.endpoint(fabric.EndpointOptions{})
	good := peer.ep.Address()
	bad := map[string][]byte{
		"nil":             nil,
		"empty":           {},
		"one byte":        {1},
		"zeros":           make([]byte, len(good)),
		"random":          testutil.Payload(len(good), 1, 0),
		"random, longest": testutil.Payload(fabric.MaxAddress, 2, 0),
		"too long":        append(append([]byte{}, good...), make([]byte, fabric.MaxAddress)...),
		"a megabyte":      make([]byte, 1<<20),
		"text":            []byte("127.0.0.1:1"),
	}
	for n := 1; n < len(good); n += 1 + n/8 {
		bad[fmt.Sprintf("first %d of %d bytes", n, len(good))] = good[:n]
	}
	for what, addr := range bad {
		c := r.a.endpoint(fabric.EndpointOptions{})
		err := r.attempt(c, addr, r.f.Deadline/2, what)
		if !errors.Is(err, fabric.ErrBadAddress) {
			r.Fatalf("Connect with address %q: %v, want ErrBadAddress", what, err)
		}
		r.must(c.ep.Close(), "close")
	}
	c := r.a.endpoint(fabric.EndpointOptions{})
	if err := r.attempt(c, c.ep.Address(), r.f.Deadline/2, "its own address"); !errors.Is(err, fabric.ErrBadAddress) {
		r.Fatalf("Connect with its own address: %v, want ErrBadAddress", err)
	}
	// The peer whose address was used wrongly is unaffected.
	c = r.a.endpoint(fabric.EndpointOptions{})
	r.join(c, peer)
	local, remote := r.a.region(64, fabric.AccessAll), r.b.region(64, fabric.AccessAll)
	c.ok(req(fabric.OpWrite, local, 0, 64, remote, 0))
	r.idle()
}

// damagedAddress: an address with one byte changed may be well-formed, but does no harm:
// Connect returns in time, and the proper connection can be made.
func damagedAddress(r *rig) {
	peer := r.b.endpoint(fabric.EndpointOptions{})
	good := peer.ep.Address()
	// All at once: most of them take all their time.
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	var cs []*conn
	var left atomic.Int32
	for i := 0; i < len(good); i += 1 + len(good)/r.times(40) {
		addr := append([]byte{}, good...)
		addr[i] ^= 0x41
		c := r.a.endpoint(fabric.EndpointOptions{PeerTimeout: r.f.PeerTimeout})
		cs = append(cs, c)
		left.Add(1)
		go func() {
			_ = c.ep.Connect(ctx, addr)
			left.Add(-1)
		}()
	}
	r.until("Connect with damaged addresses", func() bool { return left.Load() == 0 })
	for _, c := range cs {
		r.must(c.ep.Close(), "close")
	}
	for range 100 {
		r.a.poll()
		r.b.poll()
	}
	r.a.done, r.b.done = r.a.done[:0], r.b.done[:0]
	c := r.a.endpoint(fabric.EndpointOptions{})
	r.join(c, peer)
	local, remote := r.a.region(64, fabric.AccessAll), r.b.region(64, fabric.AccessAll)
	c.ok(req(fabric.OpWrite, local, 0, 64, remote, 0))
	r.idle()
}

// usedAddress: a second connection to an address does not disturb the first.
func usedAddress(r *rig) {
	ca, cb := r.pair(fabric.EndpointOptions{})
	local, remote := r.a.region(64, fabric.AccessAll), r.b.region(64, fabric.AccessAll)
	late := r.a.endpoint(fabric.EndpointOptions{PeerTimeout: r.f.PeerTimeout})
	_ = r.attempt(late, cb.ep.Address(), 100*time.Millisecond, "an address used before")
	ca.ok(req(fabric.OpWrite, local, 0, 64, remote, 0))
	r.must(late.ep.Close(), "close")
	ca.ok(req(fabric.OpWrite, local, 0, 64, remote, 0))
	cb.ok(req(fabric.OpRead, remote, 0, 64, local, 0))
	if err := r.attempt(ca, r.b.endpoint(fabric.EndpointOptions{}).ep.Address(), 100*time.Millisecond, "a connected endpoint"); err == nil {
		r.Fatal("Connect of a connected endpoint succeeded")
	}
	ca.ok(req(fabric.OpWrite, local, 0, 64, remote, 0))
	r.idle()
}

// connectDeadline: with a peer that never connects or has closed, Connect returns by its
// context's deadline.
func connectDeadline(r *rig) {
	silent := r.b.endpoint(fabric.EndpointOptions{})
	c := r.a.endpoint(fabric.EndpointOptions{})
	start := time.Now()
	err := r.attempt(c, silent.ep.Address(), 100*time.Millisecond, "a silent peer")
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		r.Fatalf("Connect with a silent peer: %v", err)
	}
	if took := time.Since(start); took > r.f.Deadline/2 {
		r.Fatalf("Connect took %v, its context 100 ms", took)
	}
	closed := r.b.endpoint(fabric.EndpointOptions{})
	addr := closed.ep.Address()
	r.must(closed.ep.Close(), "close")
	c2 := r.a.endpoint(fabric.EndpointOptions{})
	_ = r.attempt(c2, addr, 100*time.Millisecond, "a closed peer") // a device cannot detect this
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	c3 := r.a.endpoint(fabric.EndpointOptions{})
	testutil.Within(r, r.f.Deadline, "Connect with an ended context", func() {
		_ = c3.ep.Connect(ctx, silent.ep.Address())
	})
}
