package flowctl

import (
	"errors"
	"fmt"
	"math/bits"
)

// MaxBlocks bounds the blocks of a ring.
const MaxBlocks = 1 << 20

// Geometry holds the sizes that both ends of a ring must agree on, in blocks.
type Geometry struct {
	Blocks  uint32 // size of the ring, a power of two, 2 to MaxBlocks
	Control uint32 // free blocks that data may not use, at least 1
	Every   uint32 // consumed blocks after which credit is returned, at least 1
}

// DefaultGeometry returns a ring of blocks with credit returned at half a ring, and an
// eighth, at least one block, reserved for control.
//
// Why half: if credit is returned later, a writer with a full ring waits for the whole
// round trip; earlier returns only cost more credit writes, since a writer that fills half
// a ring per round trip is already limited by the link.
func DefaultGeometry(blocks uint32) Geometry {
	return Geometry{Blocks: blocks, Control: max(blocks/8, 1), Every: max(blocks/2, 1)}
}

// Validate checks the geometry. Errors wrap ErrGeometry.
func (g Geometry) Validate() error {
	switch {
	case g.Blocks < 2 || g.Blocks > MaxBlocks || g.Blocks&(g.Blocks-1) != 0:
		return fmt.Errorf("%w: %d blocks, want a power of two from 2 to %d", ErrGeometry, g.Blocks, MaxBlocks)
	case g.Control < 1 || g.Every < 1:
		return fmt.Errorf("%w: control %d, every %d: both must be at least 1", ErrGeometry, g.Control, g.Every)
	case uint64(g.Control)+uint64(g.Every) > uint64(g.Blocks):
		return fmt.Errorf("%w: control %d + every %d exceed %d blocks: a writer could wait for ever", ErrGeometry, g.Control, g.Every, g.Blocks)
	}
	return nil
}

// MaxRun is the longest run of data blocks that is always granted in the end, even if
// Every-1 consumed blocks stay unreturned.
func (g Geometry) MaxRun() int { return int(g.Blocks - g.Control - (g.Every - 1)) }

// SignalEvery is the number of blocks after which the writer must request a completion at
// the latest. Fewer blocks stay incomplete for ever if the writer stops: with at most Every
// they withhold no more than unreturned credits do.
func (g Geometry) SignalEvery() int {
	return int(min(max(g.Blocks/4, 1), g.Every))
}

// Slot returns the slot of block pos.
func (g Geometry) Slot(pos uint64) uint32 { return uint32(pos) & (g.Blocks - 1) }

// Lap returns the 16-bit lap number of block pos. The first lap is 1, so that zeroed memory
// never contains the next expected lap.
func (g Geometry) Lap(pos uint64) uint16 {
	return uint16(pos>>bits.TrailingZeros32(g.Blocks)) + 1
}

// Follow returns the first position of a ring of this geometry that replaces another one in
// which blocks before end were used. Its lap is the first, as in a new ring.
func (g Geometry) Follow(end uint64) uint64 {
	laps := uint64(g.Blocks) << 16
	return (end + laps - 1) &^ (laps - 1)
}

// Class determines the blocks that a run may take.
type Class uint8

// Classes of runs.
const (
	Data    Class = iota // leaves Geometry.Control blocks free
	Control              // may take the last free block
)

// Sender is the writing end. Not for concurrent use. The zero value grants nothing; create
// it with NewSender.
type Sender struct {
	head    uint64 // next block to reserve
	credit  uint64 // blocks before it are free at the reader
	done    uint64 // blocks before it are free in the staging copy
	blocks  uint32
	reserve uint32
	sleep   bool
}

// NewSender returns the writing end of an empty ring. g must be valid.
func NewSender(g Geometry) Sender { return SenderAt(g, 0) }

// SenderAt is NewSender for a ring whose first block is start.
func SenderAt(g Geometry, start uint64) Sender {
	return Sender{head: start, credit: start, done: start, blocks: g.Blocks, reserve: g.Control}
}

// Renew makes s the writing end of an empty ring that takes the place of the present one, and
// returns the end of that for Late. It returns false, without effect, while local writes of
// the present one are not complete.
func (s *Sender) Renew(g Geometry) (before Sender, ok bool) {
	if s.done != s.head {
		return before, false
	}
	before = *s
	*s = SenderAt(g, g.Follow(s.head))
	s.sleep = before.sleep
	return before, true
}

// Late processes a word that Apply has refused: until the first credit of this ring, words
// of the ring before may arrive. It returns false if word is not one.
func (s *Sender) Late(before *Sender, word uint64) bool {
	laps := uint64(s.blocks) << 16
	if s.credit&(laps-1) != 0 || before.Apply(word) != nil {
		return false
	}
	s.sleep = before.sleep
	return true
}

// free returns the number of unused blocks.
// Hot path.
func (s *Sender) free() uint32 {
	return s.blocks - uint32(max(s.head-s.credit, s.head-s.done))
}

// Reserve reserves the next k blocks and returns the position of the first. false means
// that there is no room now. k must be at least 1.
// Hot path.
func (s *Sender) Reserve(k int, c Class) (pos uint64, ok bool) {
	need := uint64(uint(k))
	if c == Data {
		need += uint64(s.reserve)
	}
	if k < 1 || need > uint64(s.free()) {
		return 0, false
	}
	pos = s.head
	s.head += uint64(k)
	return pos, true
}

// Free returns the longest run that Reserve would grant now.
func (s *Sender) Free(c Class) int {
	f := s.free()
	if c == Control {
		return int(f)
	}
	return int(f - min(f, s.reserve))
}

// Apply processes the last credit word that the reader wrote. The word is not trusted:
// after an error, always a *CursorError, nothing has changed.
// Hot path.
func (s *Sender) Apply(word uint64) error {
	d, err := within("credit", word>>1, s.credit, s.head-s.credit, wordMask)
	if err != nil {
		return err
	}
	s.credit += d
	s.sleep = word&1 != 0
	return nil
}

// Complete records that the link no longer uses any block before pos. The error, a
// *CursorError, means that pos was never reserved.
func (s *Sender) Complete(pos uint64) error {
	d, err := within("completion", pos, s.done, s.head-s.done, ^uint64(0))
	if err != nil {
		return err
	}
	s.done += d
	return nil
}

// PeerSleeps returns the sleep bit of the last word applied: the reader does not poll and
// needs a notification.
func (s *Sender) PeerSleeps() bool { return s.sleep }

// Head returns the position after the last reserved block.
func (s *Sender) Head() uint64 { return s.head }

// Done returns the position up to which local writes are known to be complete.
func (s *Sender) Done() uint64 { return s.done }

// Receiver is the reading end. Not for concurrent use. Create it with NewReceiver.
type Receiver struct {
	next      uint64 // next block to consume
	returned  uint64 // cursor in the last word returned by Word
	arrived   uint64 // last accepted write cursor; unused if blocks carry lap numbers
	blocks    uint32
	every     uint32
	part      bool // messages of the next block are consumed
	held      bool // owed credit is withheld
	sleep     bool
	sleepSent bool // sleep bit in the last word returned by Word
}

// NewReceiver returns the reading end of an empty ring. g must be valid.
func NewReceiver(g Geometry) Receiver { return ReceiverAt(g, 0) }

// ReceiverAt is NewReceiver for a ring whose first block is start.
func ReceiverAt(g Geometry, start uint64) Receiver {
	return Receiver{next: start, returned: start, arrived: start, blocks: g.Blocks, every: g.Every}
}

// Renew makes r the reading end of an empty ring that takes the place of the present one, all
// of whose blocks are consumed. Credit that is owed for these is dropped.
func (r *Receiver) Renew(g Geometry) {
	n := ReceiverAt(g, g.Follow(r.next))
	n.held, n.sleep, n.sleepSent = r.held, r.sleep, r.sleepSent
	*r = n
}

// Next returns the position of the next block to consume.
func (r *Receiver) Next() uint64 { return r.next }

// Consume frees k blocks. The caller has checked that they arrived.
func (r *Receiver) Consume(k int) {
	r.next += uint64(k)
	r.part = false
}

// Part records that messages of the next block are consumed, and that the writer may append
// others to it: it counts in Due as if it were consumed, since the writer may need longer runs
// than are free without it. Geometry.Every must be at least 2.
func (r *Receiver) Part() { r.part = true }

// Arrived checks the writer's cursor, and returns the number of blocks that wait to be
// consumed. The cursor is not trusted: after an error, always a *CursorError, it moved back
// or ahead of what fits the ring, and nothing has changed.
// Hot path.
func (r *Receiver) Arrived(cursor uint64) (blocks int, err error) {
	d, err := within("write cursor", cursor, r.arrived, r.returned+uint64(r.blocks)-r.arrived, ^uint64(0))
	if err != nil {
		return 0, err
	}
	r.arrived += d
	return int(r.arrived - r.next), nil
}

// Owed returns the number of consumed blocks whose credit has not been returned and is not
// withheld.
func (r *Receiver) Owed() int {
	if r.held {
		return 0
	}
	return int(r.next - r.returned)
}

// Withhold stops or resumes returning credit for consumed blocks: a reader that keeps
// unexpected messages has no room for as many more.
func (r *Receiver) Withhold(on bool) { r.held = on }

// Due reports whether a word should be written now: enough blocks are owed, or the sleep
// bit has changed. piggyback: a message is sent to the writer in any case; then half of
// Every is enough.
func (r *Receiver) Due(piggyback bool) bool {
	owed := uint64(r.Owed())
	if r.part && owed > 0 {
		owed++
	}
	if piggyback {
		owed *= 2
	}
	return owed >= uint64(r.every) || r.sleep != r.sleepSent
}

// Word returns the word to be written to the writer's credit cell and records it as
// written. Words must reach the cell in the order in which they were returned.
func (r *Receiver) Word() uint64 {
	r.returned += uint64(r.Owed())
	r.sleepSent = r.sleep
	w := r.returned << 1
	if r.sleep {
		w |= 1
	}
	return w
}

// SetSleep sets or clears the sleep bit of later words.
func (r *Receiver) SetSleep(on bool) { r.sleep = on }

// Sentinels for errors.Is.
var (
	ErrGeometry     = errors.New("invalid ring geometry")
	ErrCursorBack   = errors.New("cursor moved backwards")
	ErrCursorBeyond = errors.New("cursor beyond the possible range")
)

// CursorError reports an impossible cursor word of a peer. It unwraps to ErrCursorBack or
// ErrCursorBeyond.
type CursorError struct {
	What string // which cursor
	Got  uint64 // as it was received, without flag bits
	Low  uint64 // smallest value that would have been accepted
	High uint64 // largest
	back bool
}

func (e *CursorError) Error() string {
	return fmt.Sprintf("%s: %v: got %d, want %d to %d", e.What, e.Unwrap(), e.Got, e.Low, e.High)
}

// Unwrap returns the sentinel.
func (e *CursorError) Unwrap() error {
	if e.back {
		return ErrCursorBack
	}
	return ErrCursorBeyond
}

// wordMask is the cursor inside a credit word, 63 bits.
const wordMask = 1<<63 - 1

// within returns how far got is ahead of low, both modulo mask+1, if that is at most span.
// Half of the number circle counts as "behind".
func within(what string, got, low, span, mask uint64) (uint64, error) {
	d := (got - low) & mask
	if d <= span {
		return d, nil
	}
	return 0, &CursorError{What: what, Got: got & mask, Low: low & mask, High: (low + span) & mask, back: d > mask/2}
}
