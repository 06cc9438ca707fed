package play

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// ErrCount says that not all messages of a stream arrived.
var ErrCount = errors.New("messages were lost")

// maxSamples bounds the number of recorded trips; of longer runs every second, third …
// trip is recorded.
const maxSamples = 1 << 20

// answerSize is the size of the answer that ends a stream, the number of messages received.
const answerSize = 8

// Client runs the client's side and times it.
func Client(t Transport, p *Plan, c Conn) (Result, error) {
	msg := make([]byte, p.Size)
	for i := range msg {
		msg[i] = byte(i)
	}
	var (
		took  time.Duration
		trips []time.Duration
		err   error
	)
	for _, n := range []int{p.WarmUp(), p.Iters} {
		call, calls := c.(Caller)
		switch {
		case calls && p.Latency():
			trips, took, err = callPing(call, msg, n)
		case calls:
			took, err = callStream(call, msg, n, p.Batch)
		case p.Latency():
			trips, took, err = ping(c, msg, n)
		default:
			took, err = stream(c, msg, n, p.Batch)
		}
		if err != nil {
			return Result{}, err
		}
	}
	return newResult(t, p, took, trips), nil
}

// Server runs the server's side.
func Server(p *Plan, c Conn) error {
	if w, ok := c.(Waiter); ok {
		return w.Wait()
	}
	msg := make([]byte, p.Size)
	for _, n := range []int{p.WarmUp(), p.Iters} {
		play := sink
		if p.Latency() {
			play = pong
		}
		if err := play(c, msg, n); err != nil {
			return err
		}
	}
	return nil
}

// ping makes n round trips.
func ping(c Conn, msg []byte, n int) (trips []time.Duration, took time.Duration, err error) {
	every := n/maxSamples + 1
	trips = make([]time.Duration, 0, n/every+1)
	into := make([]byte, len(msg))
	start := time.Now()
	last := start
	for i := range n {
		if err := send(c, msg); err != nil {
			return nil, 0, err
		}
		if _, err := c.Recv(into); err != nil {
			return nil, 0, err
		}
		now := time.Now()
		if i%every == 0 {
			trips = append(trips, now.Sub(last))
		}
		last = now
	}
	return trips, last.Sub(start), nil
}

// pong answers n messages. The answer does not change while it may be in flight, see
// Conn.
func pong(c Conn, msg []byte, n int) error {
	answer := make([]byte, len(msg))
	for range n {
		if _, err := c.Recv(msg); err != nil {
			return err
		}
		if err := send(c, answer); err != nil {
			return err
		}
	}
	return nil
}

func send(c Conn, msg []byte) error {
	if err := c.Send(msg); err != nil {
		return err
	}
	return c.Flush()
}

// stream sends n messages and waits until all have arrived.
func stream(c Conn, msg []byte, n, batch int) (time.Duration, error) {
	start := time.Now()
	for i := range n {
		if err := c.Send(msg); err != nil {
			return 0, err
		}
		if (i+1)%batch == 0 {
			if err := c.Flush(); err != nil {
				return 0, err
			}
		}
	}
	if err := c.Flush(); err != nil {
		return 0, err
	}
	answer, err := c.Recv(make([]byte, answerSize))
	if err != nil {
		return 0, err
	}
	took := time.Since(start)
	if got := binary.LittleEndian.Uint64(answer); got != uint64(n) {
		return 0, fmt.Errorf("%w: %d sent, %d arrived", ErrCount, n, got)
	}
	return took, nil
}

// sink receives n messages and confirms it.
func sink(c Conn, msg []byte, n int) error {
	for range n {
		if _, err := c.Recv(msg); err != nil {
			return err
		}
	}
	answer := make([]byte, answerSize)
	binary.LittleEndian.PutUint64(answer, uint64(n))
	return send(c, answer)
}
