package flowctl

// Receiver is the reading end. Not for concurrent use. Make it with
// NewReceiver.
type Receiver struct {
	next     uint64 // next block to consume
	returned uint64 // cursor in the last word handed out
	arrived  uint64 // write cursor accepted last; unused where blocks carry lap flags
	blocks   uint32
	every    uint32
	held     bool // what is owed is kept back
	sleep    bool
	told     bool // sleep bit in the last word handed out
}

// NewReceiver returns the reading end of an empty ring. g must be valid.
func NewReceiver(g Geometry) Receiver { return ReceiverAt(g, 0) }

// ReceiverAt is NewReceiver for a ring whose first block is start.
func ReceiverAt(g Geometry, start uint64) Receiver {
	return Receiver{next: start, returned: start, arrived: start, blocks: g.Blocks, every: g.Every}
}

// Next is the position of the next block to consume.
func (r *Receiver) Next() uint64 { return r.next }

// Consume gives k blocks free. The caller has checked that they arrived.
func (r *Receiver) Consume(k int) { r.next += uint64(k) }

// Arrived checks a cursor with which the writer says how far it wrote, and
// returns how many blocks wait to be consumed. The cursor is not trusted: an
// error, always a *CursorError, means that it moved back or ahead of what fits
// the ring, and that nothing has changed.
// Hot path.
func (r *Receiver) Arrived(cursor uint64) (blocks int, err error) {
	d, err := within("write cursor", cursor, r.arrived, r.returned+uint64(r.blocks)-r.arrived, ^uint64(0))
	if err != nil {
		return 0, err
	}
	r.arrived += d
	return int(r.arrived - r.next), nil
}

// Owed is how many consumed blocks the writer does not know of and is to be told of.
func (r *Receiver) Owed() int {
	if r.held {
		return 0
	}
	return int(r.next - r.returned)
}

// Withhold keeps back the credit for what is consumed, or ends that: a reader that has
// only put messages aside has no room for as many more.
func (r *Receiver) Withhold(on bool) { r.held = on }

// Due says whether a word ought to be written now: enough blocks are owed, or
// the sleep bit has changed. piggyback says that something goes to the writer
// anyway; then half of Every is enough.
func (r *Receiver) Due(piggyback bool) bool {
	owed := uint64(r.Owed())
	if piggyback {
		owed *= 2
	}
	return owed >= uint64(r.every) || r.sleep != r.told
}

// Word returns the word to be written to the writer's credit cell and counts it
// as written. Words must reach the cell in the order they were taken.
func (r *Receiver) Word() uint64 {
	r.returned += uint64(r.Owed())
	r.told = r.sleep
	w := r.returned << 1
	if r.sleep {
		w |= 1
	}
	return w
}

// SetSleep sets or clears the sleep bit of words to come.
func (r *Receiver) SetSleep(on bool) { r.sleep = on }
