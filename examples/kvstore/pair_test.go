//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/internal/launch/launchtest"
)

// small is a store of one bucket, that is soon full.
func small(size int) layout { return layout{servers: 1, size: size, buckets: 1, clients: 2} }

// pair is a job of rank 0, which serves, and of others that do something each, one
// after the other.
func pair(others ...func(context.Context, *client) error) launchtest.Role {
	return func(ctx context.Context) error {
		eng, err := rma.Open(ctx, nil)
		if err != nil {
			return err
		}
		defer eng.Close()
		n, err := newNode(ctx, eng, small(eng.Size()), options{keys: 1, clients: 2})
		if err != nil {
			return err
		}
		defer n.close()
		for i, f := range others {
			if eng.Rank() == i+1 {
				if err := f(ctx, n.loads[0].client); err != nil {
					return err
				}
			}
			if err := eng.Barrier(ctx); err != nil {
				return err
			}
		}
		return n.win.Free(ctx)
	}
}

// quit has the client's process end without a word when the owner computes.
func quit(ctx context.Context) error {
	eng, err := rma.Open(ctx, nil)
	if err != nil {
		return err
	}
	defer eng.Close()
	n, err := newNode(ctx, eng, small(eng.Size()), options{keys: 1, ops: 1, clients: 2, alone: time.Millisecond})
	if err != nil {
		return err
	}
	defer n.close()
	if err := n.fill(ctx); err != nil {
		return err
	}
	if eng.Rank() > 0 {
		if err := eng.Barrier(ctx); err != nil {
			return err
		}
		os.Exit(0)
	}
	if err := n.measure(ctx); !errors.Is(err, rma.ErrPeerGone) {
		return fmt.Errorf("without its client: %w", err)
	} else {
		fmt.Println(err)
	}
	return nil
}

// expect is an error unless got is want.
func expect(what string, got, want any) error {
	if got != want {
		return fmt.Errorf("%s: %v instead of %v", what, got, want)
	}
	return nil
}

// calls goes through what a client can do and be told.
func calls(ctx context.Context, c *client) error {
	get := func(key, want string, missing error) error {
		v, _, err := c.get(ctx, []byte(key))
		return errors.Join(expect("get "+key, err, missing), expect("value of "+key, string(v), want))
	}
	put := func(key, value string, want error) error {
		_, err := c.put(ctx, []byte(key), []byte(value))
		return expect("put "+key, err, want)
	}
	remove := func(key string, want error) error { return expect("remove "+key, c.remove(ctx, []byte(key)), want) }
	long := string(make([]byte, maxRoom-1))
	for i, err := range []error{
		get("a", "", errNotFound), put("a", "1", nil), get("a", "1", nil),
		put("a", long, nil), get("a", long, nil), put("a", "2", nil), get("a", "2", nil),
		put("a", long+"x", errTooLong), put("", "", errTooLong), remove("b", errNotFound),
		put("b", "", nil), get("b", "", nil), put("c", "3", nil), put("d", "4", nil),
		put("e", "5", errFull), get("e", "", errNotFound), put("d", "6", nil), get("d", "6", nil),
		remove("b", nil), get("b", "", errNotFound), get("d", "6", nil), remove("b", errNotFound),
		put("e", "7", nil), get("e", "7", nil), get("a", "2", nil), get("c", "3", nil),
	} {
		if err != nil {
			return fmt.Errorf("call %d: %w", i, err)
		}
	}
	fmt.Println("calls over", c.eng.Peer(0).Link())
	return nil
}

// tear leaves a slot half written, and sees readers neither believe nor forgive it, until
// the other half is there.
func tear(ctx context.Context, c *client) error {
	key := []byte("key")
	for _, n := range []uint64{1, 2} {
		if _, err := c.put(ctx, key, valueOf(key, n)); err != nil {
			return err
		}
	}
	var next [slotSize]byte
	entry{version: 3, live: true, key: key, value: valueOf(key, 3)}.encode(next[:])
	at := c.win.At(0, tableAt)
	for _, half := range []int{8, 16, slotHead, 40} {
		peer := c.eng.Peer(0)
		if err := peer.PutBytes(at, next[:half]).Wait(ctx); err != nil {
			return err
		}
		c.limit = time.Millisecond
		_, _, err := c.get(ctx, key)
		if err := expect("get of half a slot", err, errTorn); err != nil {
			return err
		}
		c.limit = tearLimit
		result := make(chan error, 1)
		before := c.torn.Load()
		go func() {
			value, version, err := c.get(ctx, key)
			result <- errors.Join(err, check(key, value), expect("version", version, uint64(3)))
		}()
		for c.torn.Load() < before+5 {
			runtime.Gosched()
			if len(result) > 0 {
				return fmt.Errorf("get of half a slot ended: %w", <-result)
			}
		}
		if err := peer.PutBytes(at, next[:]).Wait(ctx); err != nil {
			return err
		}
		if err := <-result; err != nil {
			return err
		}
		if _, err := c.put(ctx, key, valueOf(key, 4)); err != nil {
			return err
		}
	}
	fmt.Println("torn over", c.eng.Peer(0).Link())
	return nil
}

// hammer has rank 0's application write one key as fast as it can, each time in two steps
// that are cut somewhere else. Rank 1 reads until it has met both enough values and
// enough torn slots.
func hammer(ctx context.Context) error {
	eng, err := rma.Open(ctx, nil)
	if err != nil {
		return err
	}
	defer eng.Close()
	win, err := eng.Window(ctx, small(2).bytes(eng.Rank()))
	if err != nil {
		return err
	}
	key := []byte("key")
	own := shard{layout: small(2), mem: make([]byte, small(2).bytes(0))}
	write := func(n uint64) error {
		_, err := own.put(0, key, valueOf(key, n))
		cut := int(n*8) % slotSize
		next, slot := own.mem[tableAt:][:slotSize], win.Bytes()[tableAt:]
		copy(slot[:cut], next)
		runtime.Gosched()
		copy(slot[cut:], next[cut:])
		runtime.Gosched()
		return errors.Join(err, ctx.Err())
	}
	if eng.Rank() == 0 {
		if err := write(0); err != nil {
			return err
		}
	}
	if err := eng.Barrier(ctx); err != nil {
		return err
	}
	if eng.Rank() == 0 {
		done, err := rma.View[uint64](win.Slice(doneAt, 8))
		if err != nil {
			return err
		}
		for n := uint64(1); atomic.LoadUint64(&done[0]) == 0; n++ {
			if err := write(n); err != nil {
				return err
			}
		}
		return eng.Barrier(ctx)
	}
	c, err := newClient(eng, win, small(2), 0)
	if err != nil {
		return err
	}
	l := newLoad(c, 0, 1)
	for values := 0; values < 20 || c.torn.Load() < 20; {
		value, version, err := c.get(ctx, key)
		if version > l.seen[0] {
			values++
		}
		if err := errors.Join(err, check(key, value), l.see(0, version)); err != nil {
			return err
		}
	}
	fmt.Println("hammer over", eng.Peer(0).Link(), "torn:", c.torn.Load())
	if _, err := eng.Peer(0).FetchAdd(win.At(0, doneAt), 1).Wait(ctx); err != nil {
		return err
	}
	return eng.Barrier(ctx)
}

// hostile sends the owner what no client would, and finds it in good health.
func hostile(ctx context.Context, c *client) error {
	peer := c.eng.Peer(0)
	for i, msg := range [][]byte{
		{}, {opPut}, {opPut, 0}, {opPut, 1}, {opPut, 9, 'k'}, {0, 1, 'k'}, {3, 1, 'k', 'v'}, {opRemove, 255}, make([]byte, maxRequest),
	} {
		answer := peer.RecvTag(answerTag, c.answer[:])
		if err := peer.SendTag(requestTag, msg).Wait(ctx); err != nil {
			return err
		}
		n, err := answer.Wait(ctx)
		if err != nil {
			return err
		}
		_, err = parseAnswer(c.answer[:n])
		if err := expect(fmt.Sprintf("message %d", i), err, errProtocol); err != nil {
			return err
		}
	}
	// A slot whose owner finds it broken, and lengths beyond it.
	if _, err := c.put(ctx, []byte("k"), []byte("v")); err != nil {
		return err
	}
	broken := []byte{1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 1, 0, 0, 0}
	if err := peer.PutBytes(c.win.At(0, tableAt), broken).Wait(ctx); err != nil {
		return err
	}
	_, err := c.put(ctx, []byte("k"), []byte("w"))
	if err := expect("put beside a broken slot", err, errTorn); err != nil {
		return err
	}
	if err := peer.PutBytes(c.win.At(0, tableAt), make([]byte, slotSize)).Wait(ctx); err != nil {
		return err
	}
	// One that is too long is dropped, and nobody takes the answers to these: more than
	// this rank holds for those that do not ask. It is deaf to the owner's messages then.
	peer.SendTag(requestTag|1, make([]byte, maxRequest+1)).Forget()
	msg := appendRequest(nil, opPut, []byte("a"), []byte("b"))
	for range 5000 {
		peer.SendTag(requestTag|1, msg).Forget()
	}
	fmt.Println("hostile over", peer.Link())
	return peer.Flush().Wait(ctx)
}

// unharmed finds the owner in good health.
func unharmed(ctx context.Context, c *client) error {
	key := []byte("k")
	for n := range uint64(20) {
		version, err := c.put(ctx, key, valueOf(key, n))
		if err != nil {
			return err
		}
		value, seen, err := c.get(ctx, key)
		if err := errors.Join(err, check(key, value), expect("version", seen, version)); err != nil {
			return err
		}
	}
	_, _, err := c.get(ctx, []byte("a"))
	return err
}
