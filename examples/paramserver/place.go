package main

import (
	"fmt"

	"github.com/seed33544411/rma"
)

const most = 1 << 14 // parameters: the data of a worker is quadratic

// place says which ranks serve and which work: the first ones hold a part of the
// parameters each, the others compute. A job of one rank does both.
type place struct {
	params, servers, size int
}

func (p place) check() error {
	switch {
	case p.servers < 1 || p.servers > max(1, p.size-1):
		return fmt.Errorf("want between 1 server and %d, for %d ranks, not %d", max(1, p.size-1), p.size, p.servers)
	case p.params < p.servers || p.params > most:
		return fmt.Errorf("want at least %d parameters, one per server, and at most %d", p.servers, most)
	}
	return nil
}

func (p place) serves(rank int) bool { return rank < p.servers }
func (p place) works(rank int) bool  { return rank >= p.servers || p.size == 1 }
func (p place) workers() int         { return max(1, p.size-p.servers) }

// part is what a server holds: n parameters, from one on.
func (p place) part(server int) (from, n int) {
	from = p.params * server / p.servers
	return from, p.params*(server+1)/p.servers - from
}

// A window holds a word for each rank, where the number of its steps comes to when it
// has finished, and, on a line of its own, a part of the parameters. They are of one size
// everywhere; workers do not use theirs.
func (p place) paramsAt() int { return (8*p.size + 63) &^ 63 }

// bytesOf is the size of a window, with parameters of type T.
func bytesOf[T number](p place) int { return p.paramsAt() + sizeOf[T]()*(p.params/p.servers+1) }

// remote is where a server has its part.
func (p place) remote(win *rma.Window, server int) rma.Remote {
	return win.At(server, p.paramsAt())
}

// word is where a server hears of a worker's end.
func (p place) word(win *rma.Window, server, worker int) rma.Remote {
	return win.At(server, 8*worker)
}
