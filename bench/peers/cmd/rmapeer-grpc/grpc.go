package main

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/seed33544411/rma/bench/peers/play"
)

// transport is gRPC.
type transport struct{}

func (transport) Name() string   { return "grpc" }
func (transport) Module() string { return "google.golang.org/grpc" }
func (transport) Nets() []string { return []string{"tcp", "unix"} }

func (transport) How(p *play.Plan) string {
	if p.Unary {
		return fmt.Sprintf("unary calls, %d at a time", p.Batch)
	}
	return "one stream, raw bytes"
}

// Pins: streams are faster with it, latency is worse, since each message then has to wake a
// processor.
func (transport) Pins(p *play.Plan) bool { return !p.Latency() }

// Different from gRPC's defaults: windows that never fill, so that no message waits for
// HTTP/2's credit, and buffers of which one takes many small messages (theirs are
// 32 KiB).
const (
	windowSize = 1 << 30
	bufferSize = 256 << 10
	maxMessage = play.MaxSize + 1024
)

// The service, which has no description in protobuf.
const (
	service    = "rmapeer.Play"
	streamName = "Stream"
	callName   = "Call"
)

var streamDesc = grpc.StreamDesc{StreamName: streamName, ServerStreams: true, ClientStreams: true}

// Dial connects and opens the stream.
func (transport) Dial(ctx context.Context, p *play.Plan, addr string) (play.Conn, error) {
	target := "passthrough:///" + addr
	if p.Net == "unix" {
		target = "unix:" + addr
		if addr[0] == '@' {
			target = "unix-abstract:" + addr[1:]
		}
	}
	cc, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(raw{}), grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)),
		grpc.WithInitialWindowSize(windowSize), grpc.WithInitialConnWindowSize(windowSize),
		grpc.WithReadBufferSize(bufferSize), grpc.WithWriteBufferSize(bufferSize))
	if err != nil {
		return nil, err
	}
	if p.Unary {
		return &caller{ctx: ctx, cc: cc}, nil
	}
	s, err := cc.NewStream(ctx, &streamDesc, "/"+service+"/"+streamName)
	if err != nil {
		cc.Close()
		return nil, err
	}
	return &conn{s: s, done: cc.Close}, nil
}

// stream has the methods common to the streams of both sides.
type stream interface {
	SendMsg(m any) error
	RecvMsg(m any) error
}

// conn is either side of a stream.
type conn struct {
	s    stream
	done func() error
}

func (c *conn) Send(msg []byte) error { return c.s.SendMsg(&msg) }

// Flush has nothing to do: gRPC sends by itself.
func (c *conn) Flush() error { return nil }

func (c *conn) Recv(into []byte) ([]byte, error) {
	got := into
	if err := c.s.RecvMsg(&got); err != nil {
		return nil, err
	}
	if len(got) != len(into) {
		return nil, fmt.Errorf("%w: %d bytes, want %d", errMessage, len(got), len(into))
	}
	return got, nil
}

func (c *conn) Close() error { return c.done() }
