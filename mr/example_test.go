package mr_test

import (
	"errors"
	"fmt"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/sim"
	"github.com/seed33544411/rma/internal/offheap"
	"github.com/seed33544411/rma/mr"
)

func domain() (*mr.Domain, func()) {
	l, err := sim.NewNetwork(sim.Options{}).NewLink()
	if err != nil {
		panic(err)
	}
	d, err := mr.NewDomain(mr.Rail{Link: l})
	if err != nil {
		panic(err)
	}
	return d, func() { fmt.Println("closed:", errors.Join(d.Close(), l.Close())) }
}

// A peer names memory of this side in a descriptor; this side looks whether it
// may before it copies anything there.
func ExampleDomain_Resolve() {
	d, done := domain()
	defer done()
	reg, _ := d.Alloc(4096, fabric.AccessRemoteWrite, offheap.Regions)
	key := reg.Key()

	mem, held, err := d.Resolve(key.Ref, key.Addr+100, 5, fabric.AccessRemoteWrite)
	copy(mem, "hello")
	fmt.Println(string(reg.Bytes()[100:105]), err, held.Release())

	_, _, err = d.Resolve(key.Ref, key.Addr+4000, 100, fabric.AccessRemoteWrite)
	fmt.Println(errors.Is(err, mr.ErrBounds))
	_, _, err = d.Resolve(key.Ref, key.Addr, 100, fabric.AccessRemoteRead)
	fmt.Println(errors.Is(err, mr.ErrRights))
	_ = reg.Close()
	_, _, err = d.Resolve(key.Ref, key.Addr, 1, 0)
	fmt.Println(errors.Is(err, mr.ErrStale), errors.Is(err, fabric.ErrRemoteAccess))
	// Output:
	// hello <nil> <nil>
	// true
	// true
	// true true
	// closed: <nil>
}

func ExampleArena() {
	d, done := domain()
	defer done()
	a, _ := mr.NewArena(d, mr.ArenaOptions{Limit: 16 << 20})
	p, err := a.Alloc(1000, offheap.Staging)
	fmt.Println(len(p.Bytes()), err)
	sge, err := p.SGE(0, 10, 20)
	fmt.Println(sge.Len, err)
	fmt.Println(a.Free(p), p.Bytes() == nil)
	fmt.Println(a.Free(p))
	fmt.Println(a.Close())
	// Output:
	// 1000 <nil>
	// 20 <nil>
	// <nil> true
	// piece is freed or not of this arena
	// <nil>
	// closed: <nil>
}

// Memory of the application stays registered between operations.
func ExampleCache() {
	d, done := domain()
	defer done()
	c, _ := mr.NewCache(d, mr.CacheOptions{Limit: 1 << 20})
	buf := make([]byte, 64<<10)
	for range 3 {
		l, err := c.Acquire(buf, fabric.AccessRemoteRead)
		if err != nil {
			fmt.Println(err)
			return
		}
		key, _ := l.RemoteKey(buf[100:200]) // to the peer, which reads
		_ = key
		fmt.Println(key.Len, c.Invalidate(fabric.Addr(buf), uint64(len(buf))))
		_ = c.Release(l) // when the peer is through
	}
	s := c.Stats()
	fmt.Println(s.Misses, s.Hits, s.Bytes)
	fmt.Println(c.Close())
	// Output:
	// 100 mr: invalidate: 1 operations under way hold the memory
	// 100 mr: invalidate: 1 operations under way hold the memory
	// 100 mr: invalidate: 1 operations under way hold the memory
	// 1 2 65536
	// <nil>
	// closed: <nil>
}

func ExampleParseKey() {
	d, done := domain()
	defer done()
	reg, _ := d.Alloc(4096, fabric.AccessRemoteRead, offheap.Regions)
	mine := reg.Key()
	msg := mine.Append(nil) // to the peer

	key, _, err := mr.ParseKey(msg)
	fmt.Println(len(msg), key.Len, err)
	fmt.Println(key.Check(key.Addr, 4096, fabric.AccessRemoteRead))
	fmt.Println(errors.Is(key.Check(key.Addr, 4097, fabric.AccessRemoteRead), mr.ErrBounds))
	_, _, err = mr.ParseKey(msg[:47])
	fmt.Println(err)
	// Output:
	// 48 4096 <nil>
	// <nil>
	// true
	// mr: bad remote key encoding: 47 bytes, want 48
	// closed: <nil>
}
