package main

import (
	"context"
	"fmt"

	"google.golang.org/grpc"

	"github.com/seed33544411/rma/bench/peers/play"
)

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
