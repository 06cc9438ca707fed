package flowctl

// Class says which blocks a run may take.
type Class uint8

// Classes of runs.
const (
	Data    Class = iota // leaves Geometry.Control blocks free
	Control              // may take the last free block
)

// Sender is the writing end. Not for concurrent use. The zero value admits
// nothing; make it with NewSender.
type Sender struct {
	head    uint64 // next block to hand out
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

// free is the number of blocks that nobody uses.
// Hot path.
func (s *Sender) free() uint32 {
	return s.blocks - uint32(max(s.head-s.credit, s.head-s.done))
}

// Reserve takes the next k blocks and returns the position of the first. false
// means that there is no room now. k must be at least 1.
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

// Free is the longest run that Reserve would grant now.
func (s *Sender) Free(c Class) int {
	f := s.free()
	if c == Control {
		return int(f)
	}
	return int(f - min(f, s.reserve))
}

// Apply takes the credit word that the reader wrote last. The word is not
// trusted: an error, always a *CursorError, means that nothing has changed.
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

// Complete says that the link is done with all blocks before pos. The error,
// a *CursorError, means that pos was never handed out.
func (s *Sender) Complete(pos uint64) error {
	d, err := within("completion", pos, s.done, s.head-s.done, ^uint64(0))
	if err != nil {
		return err
	}
	s.done += d
	return nil
}

// PeerSleeps is the sleep bit of the last word applied: the reader does not
// poll and wants to be notified.
func (s *Sender) PeerSleeps() bool { return s.sleep }

// Head is the position after the last block handed out.
func (s *Sender) Head() uint64 { return s.head }

// Done is the position up to which local writes are known to be complete.
func (s *Sender) Done() uint64 { return s.done }
