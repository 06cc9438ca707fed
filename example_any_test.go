package rma_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/seed33544411/rma"
)

// engine opens a job of one rank, which exchanges messages with itself, so that the examples run
// anywhere.
func engine() *rma.Engine {
	eng, err := rma.Open(context.Background(), nil)
	if err != nil {
		log.Fatal(err)
	}
	return eng
}

// A server that takes requests of all ranks.
func ExampleEnvelope() {
	ctx, eng := context.Background(), engine()
	defer eng.Close()
	req := eng.Peer(0).SendTag(7, []byte("ping"))
	buf := make([]byte, 100)
	m, err := eng.Recv(buf).WaitFrom(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%q with tag %d from rank %d\n", buf[:m.Len], m.Tag, m.From)
	if err := req.Wait(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: "ping" with tag 7 from rank 0
}

// postponer leaves messages where they are until it is ready.
type postponer struct {
	columns
	ready bool
}

func (p *postponer) Arriving(m rma.Envelope, inPlace bool) rma.Landing {
	if !p.ready {
		p.ready = true // for the next time
		p.done.Set()
		return rma.Landing{Later: true}
	}
	return p.columns.Arriving(m, inPlace)
}

// Messages that were left are offered again after Resume.
func ExampleReceiving() {
	ctx, eng := context.Background(), engine()
	defer eng.Close()
	p := &postponer{columns: columns{left: 1, done: eng.NewEvent()}}
	receiving, err := eng.Receive(rma.LibraryTags, 0xff, p)
	if err != nil {
		log.Fatal(err)
	}
	eng.Peer(0).SendFunc(rma.LibraryTags, []byte("patience"), nil)
	for range 2 {
		if err := p.done.Wait(ctx); err != nil {
			log.Fatal(err)
		}
		p.done.Reset()
		receiving.Resume()
	}
	fmt.Printf("%s\n", p.table[0])
	// Output: patience
}

// A probe returns the length of a message before memory for it is allocated.
func ExamplePeer_Probe() {
	ctx, eng := context.Background(), engine()
	defer eng.Close()
	p := eng.Peer(0)
	req := p.SendTag(3, make([]byte, 12345))
	m, err := p.Probe(3).WaitFrom(ctx)
	if err != nil {
		log.Fatal(err)
	}
	buf := make([]byte, m.Len)
	n, err := p.RecvTag(3, buf).Wait(ctx)
	fmt.Println(n, err, req.Wait(ctx))
	// Output: 12345 <nil> <nil>
}

// Cancel ends a receive that is no longer needed, and returns its buffer.
func ExampleRecvRequest_Cancel() {
	ctx, eng := context.Background(), engine()
	defer eng.Close()
	r := eng.RecvTag(9, make([]byte, 10))
	r.Cancel()
	_, err := r.Wait(ctx)
	fmt.Println(errors.Is(err, rma.ErrCanceled))
	// Output: true
}

func ExampleShortBufferError() {
	ctx, eng := context.Background(), engine()
	defer eng.Close()
	req := eng.Peer(0).Send([]byte("a long message"))
	buf := make([]byte, 4)
	_, err := eng.Recv(buf).Wait(ctx)
	var short *rma.ShortBufferError
	if errors.As(err, &short) {
		buf = make([]byte, short.Need) // it is still there
		_, err = eng.Recv(buf).Wait(ctx)
	}
	fmt.Printf("%s %v %v\n", buf, err, req.Wait(ctx))
	// Output: a long message <nil> <nil>
}

// One goroutine computes a result, while another one waits for it and drives the links.
func ExampleEvent() {
	eng := engine()
	defer eng.Close()
	ev, found := eng.NewEvent(), 0
	go func() {
		found = 42
		ev.Set()
	}()
	if err := ev.Wait(context.Background()); err != nil {
		log.Fatal(err)
	}
	fmt.Println(found)
	// Output: 42
}

// columns is a Receiver that places each message according to its tag.
type columns struct {
	table [2][8]byte
	left  int
	done  *rma.Event
}

func (c *columns) Arriving(m rma.Envelope, inPlace bool) rma.Landing {
	i := m.Tag & 0xff
	if i >= 2 || m.Len > 8 {
		return rma.Landing{Unwanted: true}
	}
	return rma.Landing{Buf: c.table[i][:], Token: &c.table[i]}
}

func (c *columns) Arrived(m rma.Envelope, token any, parts [][]byte, err error) {
	if c.left--; c.left == 0 {
		c.done.Set()
	}
}

func (c *columns) Gone(rank int, err error) {}

// A library chooses the memory of each message as it arrives.
func ExampleReceiver() {
	ctx, eng := context.Background(), engine()
	defer eng.Close()
	c := &columns{left: 2, done: eng.NewEvent()}
	const tags = rma.LibraryTags | 0x4200
	receiving, err := eng.Receive(tags, 0xff, c)
	if err != nil {
		log.Fatal(err)
	}
	eng.Peer(0).SendFunc(tags|1, []byte("second"), nil)
	eng.Peer(0).SendFunc(tags|7, []byte("not wanted"), nil)
	eng.Peer(0).SendFunc(tags, []byte("first"), nil)
	if err := c.done.Wait(ctx); err != nil {
		log.Fatal(err)
	}
	receiving.Close()
	fmt.Printf("%s %s\n", c.table[0][:5], c.table[1][:6])
	// Output: first second
}

// Destinations of a message: memory, none, or it stays at its peer for now.
func ExampleLanding() {
	choose := func(m rma.Envelope, inPlace, busy bool) rma.Landing {
		switch {
		case busy:
			return rma.Landing{Later: true}
		case m.Len > 1<<20:
			return rma.Landing{Unwanted: true}
		case inPlace:
			return rma.Landing{}
		}
		return rma.Landing{Buf: make([]byte, m.Len)}
	}
	fmt.Println(len(choose(rma.Envelope{Len: 70_000}, false, false).Buf))
	// Output: 70000
}

// A handler, and a goroutine that waits for its result.
func ExampleHandler() {
	ctx, eng := context.Background(), engine()
	defer eng.Close()
	sum, done := 0, eng.NewEvent()
	h, err := eng.Handle(1, func(m rma.Envelope, parts [][]byte) {
		for _, p := range parts {
			for _, b := range p {
				sum += int(b)
			}
		}
		if sum == 10 {
			done.Set()
		}
	})
	if err != nil {
		log.Fatal(err)
	}
	for i := range 5 {
		eng.Peer(0).SendFunc(1, []byte{byte(i)}, nil)
	}
	if err := done.Wait(ctx); err != nil {
		log.Fatal(err)
	}
	h.Close()
	fmt.Println(sum)
	// Output: 10
}

// Handlers that may wait run on goroutines of their own.
func ExampleHandlerOptions() {
	ctx, eng := context.Background(), engine()
	defer eng.Close()
	const question, answer = 1, 2
	_, err := eng.HandleWith(rma.HandlerOptions{Tag: question, Workers: 4, Backlog: 16},
		func(m rma.Envelope, parts [][]byte) {
			if err := eng.Peer(m.From).SendTag(answer, []byte("42")).Wait(ctx); err != nil {
				log.Print(err)
			}
		})
	if err != nil {
		log.Fatal(err)
	}
	eng.Peer(0).SendFunc(question, nil, nil)
	buf := make([]byte, 2)
	if _, err := eng.RecvTag(answer, buf).Wait(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", buf)
	// Output: 42
}

// A handler that gets the messages of a batch in one call.
func ExampleMessages() {
	ctx := context.Background()
	eng, _ := alone(64)
	defer eng.Close()
	sum, done := 0, eng.NewEvent()
	_, err := rma.HandleMany(eng, rma.HandlerOptions{Tag: 1}, func(ms *rma.Messages) {
		for msg, ok := ms.Next(); ok; msg, ok = ms.Next() {
			sum += int(msg[0])
		}
		if sum == 10 {
			done.Set()
		}
	})
	check(err)
	b := eng.Peer(0).Batch()
	for i := range 5 {
		b.Add(1, []byte{byte(i)})
	}
	check(b.Send().Wait(ctx))
	check(done.Wait(ctx))
	fmt.Println(sum)
	// Output: 10
}

// A receive of all parts of one step, whichever comes first.
func ExampleTags() {
	ctx := context.Background()
	eng, _ := alone(64)
	defer eng.Close()
	me := eng.Peer(0)
	const step = 7
	parts := rma.Tags{Tag: step << 8, Ignore: 0xff}
	buf := make([]byte, 16)
	first, other := parts.Recv(me, buf), me.RecvTag(9, nil)
	check(me.SendTag(9, nil).Wait(ctx))
	check(me.SendTag(step<<8|3, []byte("third")).Wait(ctx))
	check(other.Request.Wait(ctx))
	tag, n, err := first.WaitTag(ctx)
	check(err)
	fmt.Println(tag&0xff, string(buf[:n]))
	// Output: 3 third
}
