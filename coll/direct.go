package coll

import (
	"encoding/binary"
	"math/bits"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/internal/onesided"
)

// member is another rank as a board knows it. Its board is mapped (area.mems): a rank stores
// there what the other is to know.
//
// A store wakes nobody. A rank therefore notes in its board when it has its engine look for a
// flag (asleep), and looks once more before it sleeps; whoever has stored flags reads the notes
// before it releases b.mu (rouse), and writes a word of the rank that nobody reads (service.wake),
// which wakes the engine. Between the stores and the loads of either is a fence: one of the two
// ranks sees what the other has stored. The fence waits until the stores have left the processor;
// meanwhile this rank looks for what it waits for itself.
type member struct {
	key  rma.Key // of its board
	wake rma.Key // of service.wake
}

// boardWords is the size of what follows the lines in a board: the word asleep, in a cache line
// of its own.
const boardWords = 64

// asleep returns the offset of that word in a board.
func (b *board) asleep() int { return b.area.at - boardWords }

// sleeps notes whether the engine looks for a flag, and nobody else. b.mu is held.
func (b *board) sleeps(yes bool) {
	b.noted = yes
	word := uint64(0)
	if yes {
		word = 1
	}
	onesided.Store64(b.came[b.asleep():], word)
}

// send stores the message of a step in the line of its receiver.
func (b *board) send(o *operation, s *step, base int) {
	there := b.area.mems[s.peer]
	n := (s.from.n + 7) &^ 7
	end := base + (int(s.line)+1)*lineSize
	line := there[end-lineFixed-n : end]
	copy(line, o.mem(s.from))
	fixed := line[n:]
	binary.LittleEndian.PutUint64(fixed, uint64(b.t.rank))
	o.call.put(fixed[8:])
	onesided.Release64(fixed[24:], o.flag)
	b.stored |= 1 << s.peer
}

// rouse finds out which ranks do not look themselves for what this one has stored: they are woken
// when b.mu is released. b.mu is held.
func (b *board) rouse() {
	if b.stored == 0 {
		return
	}
	b.fence.Add(1) // what is stored is seen before the notes are read
	for ; b.stored != 0; b.stored &= b.stored - 1 {
		r := bits.TrailingZeros64(b.stored)
		if onesided.Load64(b.area.mems[r][b.asleep():]) != 0 {
			b.wakes |= 1 << r
		}
	}
}

// unlock releases b.mu, and then wakes ranks: the engine may call handlers and other callbacks
// meanwhile, which take b.mu.
func (b *board) unlock() {
	b.rouse()
	wakes := b.wakes
	b.wakes = 0
	b.mu.Unlock()
	for ; wakes != 0; wakes &= wakes - 1 {
		r := bits.TrailingZeros64(wakes)
		rma.LibrarySignal(b.t.eng.Peer(b.t.ranks[r]), b.members[r].wake.At(0), rma.SignalSet, 1).Then(ignore)
	}
}

// ignore ignores the end of a signal: who has left need not be woken.
func ignore(error) {}
