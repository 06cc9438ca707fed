package coll

import (
	"context"
	"encoding/binary"
	"sync/atomic"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/internal/onesided"
)

// member is the way from a board to that of another rank: by puts, and by stores of this
// processor once the memory is mapped and no put is in flight, which could overwrite a line
// that was stored after it.
//
// A store wakes nobody. A rank therefore notes in its board when it has its engine look for a
// flag (asleep), and looks once more before it sleeps; whoever has stored a flag reads the note
// and writes a word of the rank that nobody reads (service.wake), which wakes the engine. The flag and the note
// are stored and loaded in one order by all processors (sync/atomic): one of the two ranks sees
// what the other has stored.
type member struct {
	key      rma.Key
	wake     rma.Key      // of service.wake
	posted   func(error)  // the end of a put
	woken    func(error)  // the end of one that wakes: who has left needs none
	inFlight atomic.Int32 // puts
	asked    bool         // reach was called; guarded by the board's mu, as the next one
	mapping  *rma.Mapping // nil: by puts
}

// boardWords is the size of what follows the lines in a board: the word asleep, in a cache line
// of its own.
const boardWords = 64

// asleep returns the offset of that word in a board.
func (b *board) asleep() int { return b.area.at - boardWords }

// sleeps notes whether the engine looks for a flag. b.mu is held.
func (b *board) sleeps(yes uint64) { onesided.Store64(b.came[b.asleep():], yes) }

// reach maps the board of a member, which takes a while. The board then stores there.
func (b *board) reach(ctx context.Context, i int) {
	m := &b.members[i]
	mapping, err := rma.Map(ctx, b.t.eng.Peer(b.t.ranks[i]), m.key.Slice(0, m.key.Len()))
	if err != nil {
		return // by puts, which report what is wrong
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.dead.Load() || b.ended {
		_ = mapping.Close()
		return
	}
	m.mapping = mapping
}

// release ends the use of the other ranks' memory, behind the last operation. b.mu is held.
func (b *board) release() {
	b.ended = true
	b.cancel()
	for i := range b.members {
		if m := b.members[i].mapping; m != nil {
			b.members[i].mapping = nil
			_ = m.Close()
		}
	}
}

// put sends the message of a step.
func (b *board) put(o *operation, s *step, base int) {
	m := &b.members[s.peer]
	n := (s.from.n + 7) &^ 7
	end := base + (int(s.line)+1)*lineSize // in the board of the receiver
	if m.mapping != nil && m.inFlight.Load() == 0 {
		there := m.mapping.Bytes()
		b.fill(there[end-lineFixed-n:end], o, s)
		onesided.Store64(there[end-8:], o.flag)
		if onesided.Load64(there[b.asleep():]) != 0 {
			b.wake(int(s.peer))
		}
		return
	}
	if !m.asked {
		m.asked = true
		go b.reach(b.ctx, int(s.peer))
	}
	mine := base + (o.puts+1)*lineSize
	o.puts++
	line := b.sent[mine-lineFixed-n : mine]
	b.fill(line, o, s)
	binary.NativeEndian.PutUint64(line[len(line)-8:], o.flag)
	b.post(s.peer, end-len(line), mine-len(line), len(line))
}

// post is a put to the board of a member.
type post struct {
	to       *member
	rank     int // of the job
	at, from int // offsets there and in out
	n        int
	wakes    bool // it is a signal that wakes the member, of no data
}

// post notes a put, which unlock makes. b.mu is held.
func (b *board) post(peer int32, at, from, n int) {
	m := &b.members[peer]
	m.inFlight.Add(1)
	b.posts = append(b.posts, post{m, b.t.ranks[peer], at, from, n, false})
}

// wake notes a signal that wakes a member, which unlock gives. b.mu is held.
func (b *board) wake(rank int) {
	m := &b.members[rank]
	m.inFlight.Add(1)
	b.posts = append(b.posts, post{to: m, rank: b.t.ranks[rank], wakes: true})
}

// unlock releases b.mu, and then makes the puts: the engine may call handlers and other
// callbacks meanwhile, which take b.mu. Two goroutines may make theirs in any order: no rank
// uses the place of a line again before all lines of its operation have been read.
func (b *board) unlock() {
	if len(b.posts) == 0 {
		b.mu.Unlock()
		return
	}
	var room [8]post
	posts := append(room[:0], b.posts...)
	b.posts = b.posts[:0]
	b.mu.Unlock()
	for _, p := range posts {
		if p.wakes {
			b.t.eng.Peer(p.rank).Signal(p.to.wake.At(0), rma.SignalSet, 1).Then(p.to.woken)
			continue
		}
		b.t.eng.Peer(p.rank).Put(p.to.key.At(p.at), b.out.Slice(p.from, p.n)).Then(p.to.posted)
	}
}

// fill writes a line but for its flag.
func (b *board) fill(line []byte, o *operation, s *step) {
	copy(line, o.mem(s.from))
	fixed := line[len(line)-lineFixed:]
	binary.LittleEndian.PutUint64(fixed, uint64(b.t.rank))
	o.call.put(fixed[8:])
}
