package rma_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/seed33544411/rma"
)

// A request is a value. Done reports whether it is complete; Wait may be repeated after its
// context has ended.
func ExampleRequest() {
	ctx := context.Background()
	eng, err := rma.Open(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Close()
	buf := make([]byte, 16)
	recv := eng.Peer(0).Recv(buf)
	soon, cancel := context.WithTimeout(ctx, time.Millisecond) // deadline: it has to end
	defer cancel()
	_, err = recv.Wait(soon) // nobody has sent
	fmt.Println(errors.Is(err, context.DeadlineExceeded), recv.Done())

	send := eng.Peer(0).Send([]byte("late"))
	n, err := recv.Wait(ctx)
	fmt.Println(string(buf[:n]), err)
	fmt.Println(send.Wait(ctx))
	fmt.Println(send.Wait(ctx))
	// Output:
	// true false
	// late <nil>
	// <nil>
	// request has been waited for already
}

// A lock without a server: the rank that swaps 0 for 1 holds it.
func ExampleAtomicRequest() {
	ctx := context.Background()
	eng, err := rma.Open(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Close()
	mem, err := eng.Alloc(4096)
	if err != nil {
		log.Fatal(err)
	}
	key := mem.Key()
	lock := key.At(0)
	for range 2 {
		swap := eng.Peer(0).CompareSwap(lock, 0, 1)
		was, err := swap.Wait(ctx)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(was == 0)
	}
	// Output:
	// true
	// false
}

// A message may be chosen by its tag; one that is too long is an error and stays.
func ExampleRecvRequest() {
	ctx := context.Background()
	eng, err := rma.Open(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Close()
	me := eng.Peer(0)
	const work = 7
	sent := me.SendTag(work, []byte("a piece of work"))
	buf := make([]byte, 64)
	_, err = me.RecvTag(work, buf[:4]).Wait(ctx)
	fmt.Println(errors.Is(err, rma.ErrShortBuffer))
	tag, n, err := me.Recv(buf).WaitTag(ctx)
	fmt.Println(tag, string(buf[:n]), err, sent.Wait(ctx))
	// Output:
	// true
	// 7 a piece of work <nil> <nil>
}

// Many messages in one batch: the cost model plans them together.
func ExampleBatch() {
	ctx := context.Background()
	eng, err := rma.Open(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Close()
	me := eng.Peer(0)
	parts := [][]byte{[]byte("one"), []byte("two"), []byte("three")}

	b := me.Batch()
	for tag, part := range parts {
		b.Add(uint32(tag), part)
	}
	sent := b.Send()

	buf := make([]byte, 64)
	for tag := range parts {
		n, err := me.RecvTag(uint32(tag), buf).Wait(ctx)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(string(buf[:n]))
	}
	if err := sent.Wait(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// one
	// two
	// three
}

// Receives in bulk: one request, one wait.
func ExampleRecvBatch() {
	ctx := context.Background()
	eng, err := rma.Open(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Close()
	me := eng.Peer(0)
	var in rma.RecvBatch
	bufs := make([][]byte, 3)
	for i := range bufs {
		bufs[i] = make([]byte, 64)
		in.Add(1, bufs[i])
	}
	received := in.Recv(me)
	for _, part := range []string{"one", "two", "three"} {
		me.SendTag(1, []byte(part)).Forget()
	}
	if err := received.Wait(ctx); err != nil {
		log.Fatal(err)
	}
	for i, buf := range bufs {
		m, err := in.Got(i)
		fmt.Println(string(buf[:m.Len]), err)
	}
	// Output:
	// one <nil>
	// two <nil>
	// three <nil>
}

// A synchronous send ends when its message has been matched.
func ExampleSendSync() {
	ctx := context.Background()
	eng, _ := alone(64)
	defer eng.Close()
	p := eng.Peer(0)
	sent := rma.SendSync(p, 1, []byte("taken?"))
	fmt.Println(sent.Done())
	buf := make([]byte, 16)
	n, err := p.RecvTag(1, buf).Wait(ctx)
	check(err)
	check(sent.Wait(ctx))
	fmt.Println(string(buf[:n]))
	// Output:
	// false
	// taken?
}
