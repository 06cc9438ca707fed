package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/seed33544411/rma/internal/bench/sockets"
)

// measure is the main function of the two processes of
//
//	rmabench sockets --program grpc
//
// which measures gRPC over rmanet and over sockets.
func measure(ctx context.Context) error {
	return sockets.Child(ctx, os.Stdin, os.Stdout,
		sockets.Workload{Name: "grpc", Serve: serveCalls, Dial: dialUnary},
		sockets.Workload{Name: "grpc-stream", Bytes: sockets.StreamBytes, Serve: serveCalls, Dial: dialStreams})
}

// The measured service, which has no description in protobuf.
const (
	measured   = "rma.Measured"
	echoCall   = "/" + measured + "/Echo"
	streamCall = "/" + measured + "/Stream"
)

// An empty message of a stream asks for the number of bytes that have arrived.
var streamDesc = grpc.StreamDesc{StreamName: "Stream", ClientStreams: true, ServerStreams: true, Handler: func(_ any, s grpc.ServerStream) error {
	var sum uint64
	for {
		var m wrapperspb.BytesValue
		if err := s.RecvMsg(&m); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if sum += uint64(len(m.Value)); len(m.Value) == 0 {
			if err := s.SendMsg(wrapperspb.UInt64(sum)); err != nil {
				return err
			}
		}
	}
}}

func serveCalls(l net.Listener) error {
	srv := grpc.NewServer()
	srv.RegisterService(&grpc.ServiceDesc{
		ServiceName: measured, HandlerType: (*any)(nil), Streams: []grpc.StreamDesc{streamDesc},
		Methods: []grpc.MethodDesc{{MethodName: "Echo", Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			m := new(wrapperspb.BytesValue)
			return m, decode(m)
		}}},
	}, nil)
	err := srv.Serve(l) // until l is closed
	srv.Stop()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// clients are the connections of a client.
type clients []*grpc.ClientConn

func dialClients(dial sockets.Dial, n int) (cs clients, err error) {
	for range n {
		c, err := grpc.NewClient("passthrough:///server", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return dial(ctx) }))
		if err != nil {
			return nil, errors.Join(err, cs.Close())
		}
		cs = append(cs, c)
	}
	return cs, nil
}

// Close closes all of them.
func (cs clients) Close() (err error) {
	for _, c := range cs {
		err = errors.Join(err, c.Close())
	}
	return err
}

// unary makes calls with some bytes, which are returned.
type unary struct {
	clients
	ctx context.Context
}

func dialUnary(ctx context.Context, dial sockets.Dial, n int) (sockets.Client, error) {
	cs, err := dialClients(dial, n)
	return &unary{cs, ctx}, err
}

func (u *unary) Op(i int) error {
	var m wrapperspb.BytesValue
	err := u.clients[i].Invoke(u.ctx, echoCall, wrapperspb.Bytes([]byte("ping")), &m)
	if err == nil && string(m.Value) != "ping" {
		err = fmt.Errorf("answer %q", m.Value)
	}
	return err
}

// Finish has nothing to do: each call has been answered.
func (u *unary) Finish() error { return nil }

// streams sends messages of 64 KiB on a stream of each connection.
type streams struct {
	clients
	streams []grpc.ClientStream
	sent    []uint64
	msg     *wrapperspb.BytesValue
}

func dialStreams(ctx context.Context, dial sockets.Dial, n int) (sockets.Client, error) {
	cs, err := dialClients(dial, n)
	if err != nil {
		return nil, err
	}
	s := &streams{clients: cs, sent: make([]uint64, n), msg: wrapperspb.Bytes(make([]byte, sockets.StreamBytes))}
	for _, c := range cs {
		st, err := c.NewStream(ctx, &streamDesc, streamCall)
		if err != nil {
			return nil, errors.Join(err, cs.Close())
		}
		s.streams = append(s.streams, st)
	}
	return s, nil
}

func (s *streams) Op(i int) error {
	s.sent[i] += sockets.StreamBytes
	return s.streams[i].SendMsg(s.msg)
}

// Finish asks for the numbers of bytes that have arrived.
func (s *streams) Finish() error {
	for _, st := range s.streams {
		if err := st.SendMsg(&wrapperspb.BytesValue{}); err != nil {
			return err
		}
	}
	for i, st := range s.streams {
		var n wrapperspb.UInt64Value
		if err := st.RecvMsg(&n); err != nil {
			return err
		}
		if n.Value != s.sent[i] {
			return fmt.Errorf("%d bytes have arrived, want %d", n.Value, s.sent[i])
		}
	}
	return nil
}
