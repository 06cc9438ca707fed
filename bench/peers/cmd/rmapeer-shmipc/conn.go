//go:build linux && (amd64 || arm64)

package main

import (
	"github.com/cloudwego/shmipc-go"

	"github.com/seed33544411/rma/bench/peers/play"
)

// conn is either side of a stream. Of a stream in one direction the receiver
// acknowledges a part of the window at a time, by a message of one byte.
type conn struct {
	s   *shmipc.Stream
	r   shmipc.BufferReader
	w   shmipc.BufferWriter
	end func() error

	window
	flow    bool // messages are acknowledged
	sends   bool // by the other side
	pending int  // sent and not acknowledged; received since the last acknowledgement
}

func newConn(p *play.Plan, s *shmipc.Stream, end func() error, client bool) *conn {
	return &conn{s: s, r: s.BufferReader(), w: s.BufferWriter(), end: end, window: newWindow(p.Size), flow: !p.Latency(), sends: client}
}

// Send copies msg into shared memory, and wakes the receiver if it sleeps: only a flushed
// buffer is a message.
func (c *conn) Send(msg []byte) error {
	if c.flow && c.sends {
		for c.pending >= c.messages {
			if err := c.acknowledged(); err != nil {
				return err
			}
		}
		c.pending++
	}
	return c.send(msg)
}

func (c *conn) send(msg []byte) error {
	if _, err := c.w.WriteBytes(msg); err != nil {
		return err
	}
	return c.s.Flush(false)
}

// Flush has nothing to do, see Send.
func (c *conn) Flush() error { return nil }

// acknowledged waits for an acknowledgement.
func (c *conn) acknowledged() error {
	c.pending -= c.step
	_, err := c.take(1)
	return err
}

// Recv waits for a message and does not copy it.
func (c *conn) Recv(into []byte) ([]byte, error) {
	if c.flow && c.sends { // the answer is behind all acknowledgements
		for c.pending >= c.step {
			if err := c.acknowledged(); err != nil {
				return nil, err
			}
		}
	}
	msg, err := c.take(len(into))
	if err != nil || !c.flow || c.sends {
		return msg, err
	}
	if c.pending++; c.pending == c.step {
		c.pending = 0
		err = c.send(ack)
	}
	return msg, err
}

// take returns the memory of the last message and borrows the next n bytes.
func (c *conn) take(n int) ([]byte, error) {
	c.r.ReleasePreviousRead()
	return c.r.ReadBytes(n)
}

var ack = []byte{1}

func (c *conn) Close() error { return c.end() }
