package locks_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"log"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/locks"
)

func Example() {
	ctx := context.Background()
	eng, err := rma.Open(ctx, nil) // a job of one rank, unless started by a launcher
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Close()
	win, err := eng.Window(ctx, 4096)
	if err != nil {
		log.Fatal(err)
	}
	ls, err := locks.New(eng)
	if err != nil {
		log.Fatal(err)
	}

	const home, row = 0, 3
	held, err := ls.Lock(ctx, locks.ID{Home: home, Key: row})
	if err != nil {
		log.Fatal(err)
	}
	var b [8]byte
	at, p := win.At(home, 8*row), eng.Peer(home)
	if err := p.GetBytes(b[:], at).Wait(ctx); err != nil {
		log.Fatal(err)
	}
	binary.LittleEndian.PutUint64(b[:], 2*binary.LittleEndian.Uint64(b[:])+1) // no atomic does this
	p.PutBytes(at, b[:]).Forget()
	if err := held.Unlock(ctx); err != nil { // after the put
		log.Fatal(err)
	}
	fmt.Println(win.Bytes()[8*row])
	// Output: 1
}
