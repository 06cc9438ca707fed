//go:build linux && (amd64 || arm64)

package main

import (
	"context"
	"fmt"
	"net"

	"github.com/cloudwego/shmipc-go"

	"github.com/seed33544411/rma/bench/peers/play"
)

// transport is shmipc-go.
type transport struct{}

func (transport) Name() string   { return "shmipc" }
func (transport) Module() string { return "github.com/cloudwego/shmipc-go" }
func (transport) Nets() []string { return []string{"unix"} }

func (transport) How(p *play.Plan) string {
	return fmt.Sprintf("one stream, synchronous, memfd, window %d", newWindow(p.Size).messages)
}

// Pins: streams are faster with it, latency is worse, since each message then has to wake a
// processor.
func (transport) Pins(p *play.Plan) bool { return !p.Latency() }

// Sizes. Its queue holds more than a window, because a full one is answered by
// sleeping for 10 ms. All messages of a window have a slice of shared memory each,
// of their own size, so that none is cut; memory beyond cache is not used.
const (
	queueCap    = 16 << 10
	maxMessages = 8 << 10
	cache       = 8 << 20 // bytes of a window, if it is to have several messages
	minSlice    = 64
	sliceHeader = 20 // the library's, in front of every slice
	minMemory   = 1 << 20
	noLog       = 5
	steps       = 4 // parts of a window, each acknowledged at once
)

// window returns the number of messages of a stream in flight: shmipc has no flow control,
// and once there is no shared memory left, messages take the socket from then on.
type window struct {
	messages int
	step     int // of how many the receiver tells that it has taken them
	slice    int // bytes that each has
	memory   int
}

func newWindow(size int) window {
	w := window{slice: (max(size, minSlice) + 63) &^ 63}
	w.messages = min(max(cache/w.slice, steps), maxMessages) / steps * steps
	w.step = w.messages / steps
	// one and a half windows, and the acknowledgements
	w.memory = max(w.messages*3/2*(w.slice+sliceHeader)+minMemory, minMemory)
	return w
}

func config(size int) *shmipc.Config {
	w := newWindow(size)
	c := shmipc.DefaultConfig()
	c.QueueCap = queueCap
	c.MemMapType = shmipc.MemMapTypeMemFd
	c.ShareMemoryBufferCap = uint32(w.memory)
	c.BufferSliceSizes = []*shmipc.SizePercentPair{{Size: uint32(w.slice), Percent: 100}}
	shmipc.SetLogLevel(noLog) // the end of the other side is an error to it
	return c
}

func (transport) Listen(ctx context.Context, p *play.Plan) (play.Listener, error) {
	l, err := play.ListenLocal(ctx, p.Net)
	if err != nil {
		return nil, err
	}
	return &listener{l, ctx, p}, nil
}

type listener struct {
	net.Listener
	ctx context.Context
	p   *play.Plan
}

func (l *listener) Addr() string { return l.Listener.Addr().String() }

// Accept also waits for the client's first message, with which a stream begins.
func (l *listener) Accept() (play.Conn, error) {
	raw, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	session, err := shmipc.Server(raw, config(l.p.Size))
	if err != nil {
		return nil, err
	}
	context.AfterFunc(l.ctx, func() { session.Close() })
	s, err := session.AcceptStream()
	if err != nil {
		session.Close()
		return nil, err
	}
	return newConn(l.p, s, session.Close, false), nil
}

func (transport) Dial(ctx context.Context, p *play.Plan, addr string) (play.Conn, error) {
	c := shmipc.DefaultSessionManagerConfig()
	c.Config, c.Network, c.Address, c.SessionNum = config(p.Size), p.Net, addr, 1
	m, err := shmipc.NewSessionManager(c)
	if err != nil {
		return nil, err
	}
	s, err := m.GetStream()
	if err != nil {
		m.Close()
		return nil, err
	}
	context.AfterFunc(ctx, func() { s.Session().Close() })
	return newConn(p, s, func() error { return s.Session().Close() }, true), nil
}
