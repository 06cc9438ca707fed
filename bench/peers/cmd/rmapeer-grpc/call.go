package main

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"

	"github.com/seed33544411/rma/bench/peers/play"
)

// errMessage says that the other side has sent an unexpected message.
var errMessage = errors.New("unexpected message")

// raw is a codec for plain bytes: a message is a *[]byte. A message that is sent is
// referred to, not copied; one that arrives is copied into the slice of its receive, as by
// any decoder, which is cut to the length of the message.
type raw struct{}

func (raw) Name() string { return "raw" }

func (raw) Marshal(v any) (mem.BufferSlice, error) {
	b, ok := v.(*[]byte)
	if !ok {
		return nil, fmt.Errorf("%w: %T", errMessage, v)
	}
	return mem.BufferSlice{mem.SliceBuffer(*b)}, nil
}

func (raw) Unmarshal(data mem.BufferSlice, v any) error {
	b, ok := v.(*[]byte)
	n := data.Len()
	if !ok || n > cap(*b) {
		return fmt.Errorf("%w: %d bytes for %T", errMessage, n, v)
	}
	*b = (*b)[:n]
	data.CopyTo(*b)
	return nil
}

// caller is the client's side of calls. Both sides know how long an answer is: as
// long as the message for latency, else it is empty.
type caller struct {
	play.Conn // none: nothing is sent but by calls
	ctx       context.Context
	cc        *grpc.ClientConn
}

// Call implements play.Caller.
func (c *caller) Call(msg []byte, n int) error {
	answer := make([]byte, n)
	if err := c.cc.Invoke(c.ctx, "/"+service+"/"+callName, &msg, &answer); err != nil {
		return err
	}
	if len(answer) != n {
		return fmt.Errorf("%w: answer of %d bytes, want %d", errMessage, len(answer), n)
	}
	return nil
}

func (c *caller) Close() error { return c.cc.Close() }
