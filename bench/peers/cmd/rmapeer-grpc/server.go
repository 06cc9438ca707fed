package main

import (
	"context"
	"net"
	"sync"

	"google.golang.org/grpc"

	"github.com/seed33544411/rma/bench/peers/play"
)

// server is the server's side: one service with a stream that is passed to the caller
// of Accept, and a call that is answered at once.
type server struct {
	ctx    context.Context
	l      net.Listener
	srv    *grpc.Server
	size   int // of a message
	answer int // of a call
	came   chan play.Conn
	ended  chan error
}

func (transport) Listen(ctx context.Context, p *play.Plan) (play.Listener, error) {
	l, err := play.ListenLocal(ctx, p.Net)
	if err != nil {
		return nil, err
	}
	s := &server{ctx: ctx, l: l, size: p.Size, came: make(chan play.Conn, 1), ended: make(chan error, 1)}
	if p.Latency() {
		s.answer = p.Size
	}
	s.srv = grpc.NewServer(grpc.ForceServerCodecV2(raw{}), grpc.InitialWindowSize(windowSize), grpc.InitialConnWindowSize(windowSize),
		grpc.ReadBufferSize(bufferSize), grpc.WriteBufferSize(bufferSize), grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage))
	desc := streamDesc
	desc.Handler = func(_ any, st grpc.ServerStream) error { return s.stream(st) }
	s.srv.RegisterService(&grpc.ServiceDesc{
		ServiceName: service, HandlerType: (*any)(nil), Streams: []grpc.StreamDesc{desc},
		Methods: []grpc.MethodDesc{{MethodName: callName, Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			return s.call(decode)
		}}},
	}, s)
	if p.Unary {
		s.came <- waiter{}
	}
	context.AfterFunc(ctx, s.srv.Stop)
	go func() { s.ended <- s.srv.Serve(l) }()
	return s, nil
}

// stream lends the stream to Accept's caller until that closes it. A second one is
// refused.
func (s *server) stream(st grpc.ServerStream) error {
	over := make(chan struct{})
	c := &conn{s: st, done: sync.OnceValue(func() error { close(over); return nil })}
	select {
	case s.came <- c:
	default:
		return errMessage
	}
	select {
	case <-over:
	case <-st.Context().Done():
	}
	return nil
}

// call answers one call.
func (s *server) call(decode func(any) error) (any, error) {
	msg := make([]byte, s.size)
	if err := decode(&msg); err != nil {
		return nil, err
	}
	answer := msg[:min(s.answer, len(msg))]
	return &answer, nil
}

func (s *server) Addr() string { return s.l.Addr().String() }

func (s *server) Accept() (play.Conn, error) {
	select {
	case c := <-s.came:
		return c, nil
	case <-s.ctx.Done():
		return nil, context.Cause(s.ctx)
	}
}

func (s *server) Close() error {
	s.srv.Stop()
	return <-s.ended
}

// waiter is the server's side of calls, which needs no goroutine.
type waiter struct{ play.Conn }

func (waiter) Wait() error  { return nil }
func (waiter) Close() error { return nil }
