package main

import (
	"context"
	"time"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/examples/nas/internal/nas"
)

// halo exchanges the faces of a rank's grids. Along an axis that is divided in two, both
// neighbours are the same rank: it gets the two faces in one message.
//
// The window of a rank has a signal word for each axis and, for each divided axis, two buffers
// for messages from the neighbour and two for messages to it. Two suffice: who sends
// message k has read message k-1, so buffer k-2 is free when a rank that has received k-1
// sends k.
type halo struct {
	c         *nas.Comm
	win       *rma.Window
	buffers   []float64 // of the window, behind the words
	ways      [axes]way
	low, high []float64 // faces of an axis that is not divided
}

// way is the way to the neighbour along an axis.
type way struct {
	divided   bool
	neighbour int
	turn      uint64 // messages sent, and received
	recv      [2]int // index in buffers
	send      [2]int
	room      int
	sent      [2]rma.Request // from each of the send buffers
}

const (
	word  = 8  // bytes of a number, and of a signal
	words = 64 // bytes of the words of all axes, one cache line
)

// newHalo makes the windows, for grids up to top. All ranks must call it.
func newHalo(ctx context.Context, c *nas.Comm, b block, top *grid) (*halo, error) {
	h := &halo{c: c}
	total := 0
	for a := axisX; a < axes; a++ {
		face := top.face(a)
		if b.parts[a] == 1 {
			if face > len(h.low) {
				h.low, h.high = make([]float64, face), make([]float64, face)
			}
			continue
		}
		w := &h.ways[a]
		w.divided, w.room = true, 2*face
		other := b
		other.place[a] ^= 1
		w.neighbour = other.rank()
		for i := range 2 {
			w.recv[i], w.send[i] = total, total+w.room
			total += 2 * w.room
		}
	}
	var err error
	if h.win, err = c.Engine().Window(ctx, words+word*total); err != nil {
		return nil, err
	}
	h.buffers, err = rma.View[float64](h.win.Slice(words, word*total))
	return h, err
}

// exchange sets the points of a grid that belong to the neighbours, which must call it as
// well. Faces of a later axis include the neighbours' points of the earlier ones, so that
// edges and corners arrive as well. Packing and unpacking are no communication, as in the reference
// program.
func (h *halo) exchange(ctx context.Context, g *grid) error {
	for a := axisX; a < axes; a++ {
		w := &h.ways[a]
		face, n := g.face(a), g.size(a)
		if !w.divided {
			low, high := h.low[:face], h.high[:face]
			g.pack(a, 1, low)
			g.pack(a, n, high)
			g.unpack(a, n+1, low)
			g.unpack(a, 0, high)
			continue
		}
		w.turn++
		if err := h.settle(ctx, w); err != nil {
			return err
		}
		out := h.buffers[w.send[w.turn%2]:]
		g.pack(a, 1, out[:face])
		g.pack(a, n, out[face:2*face])
		h.put(a, 2*face)
		if err := h.await(ctx, a); err != nil {
			return err
		}
		in := h.buffers[w.recv[w.turn%2]:]
		g.unpack(a, n+1, in[:face]) // the neighbour's low face
		g.unpack(a, 0, in[face:2*face])
	}
	return nil
}

// settle waits until the send buffer of the present message is free.
func (h *halo) settle(ctx context.Context, w *way) error {
	if w.turn <= 2 {
		return nil
	}
	defer h.c.Communicated(time.Now())
	return w.sent[w.turn%2].Wait(ctx)
}

// put puts n points of the send buffer into the window of the neighbour along an axis, and tells it.
func (h *halo) put(a axis, n int) {
	defer h.c.Communicated(time.Now())
	w := &h.ways[a]
	i := w.turn % 2
	at := func(index int) int { return words + word*index }
	w.sent[i] = h.c.Engine().Peer(w.neighbour).PutSignal(h.win.At(w.neighbour, at(w.recv[i])), h.win.Slice(at(w.send[i]), word*n),
		h.win.At(w.neighbour, word*int(a)), rma.SignalSet, w.turn)
}

// await waits for the present message of the neighbour along an axis.
func (h *halo) await(ctx context.Context, a axis) error {
	defer h.c.Communicated(time.Now())
	w := &h.ways[a]
	_, err := h.c.Engine().Peer(w.neighbour).WaitSignal(ctx, h.win.Slice(word*int(a), word), rma.GE, w.turn)
	return err
}

// size returns the own points along an axis.
func (g *grid) size(a axis) int { return [axes]int{g.nx, g.ny, g.nz}[a] }

// face returns the points of a face across the axis: with those around it along earlier axes.
func (g *grid) face(a axis) int {
	return [axes]int{g.ny * g.nz, (g.nx + 2) * g.nz, (g.nx + 2) * (g.ny + 2)}[a]
}

// pack copies the face at index i of the axis to buf, which has its size.
func (g *grid) pack(a axis, i int, buf []float64) {
	switch a {
	case axisX:
		for z := range g.nz {
			for y := range g.ny {
				buf[z*g.ny+y] = g.row(z+1, y+1)[i]
			}
		}
	case axisY:
		for z := range g.nz {
			buf = buf[copy(buf, g.row(z+1, i)):]
		}
	default:
		copy(buf, g.at[i*len(buf):])
	}
}

// unpack is the reverse of pack.
func (g *grid) unpack(a axis, i int, buf []float64) {
	switch a {
	case axisX:
		for z := range g.nz {
			for y := range g.ny {
				g.row(z+1, y+1)[i] = buf[z*g.ny+y]
			}
		}
	case axisY:
		for z := range g.nz {
			buf = buf[copy(g.row(z+1, i), buf):]
		}
	default:
		copy(g.at[i*len(buf):], buf)
	}
}
