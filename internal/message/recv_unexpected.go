package message

import "github.com/seed33544411/rma/eager"

// unexpected holds messages that no receive has asked for, in order: copies of
// small ones, and announced ones that the peer still has. There may be a hundred
// thousand of them: a receiver that is behind takes the first, again and again, and
// that must not move the others.
type unexpected struct {
	list  []aside // from head on
	head  int
	n     int
	bytes int
	limit int

	// Where copies and a full ring of window bytes more would be beyond the limit, the
	// credit for what is taken is kept back: the ring empties, so that what passes it is
	// not held up, but does not fill again.
	ring   *eager.Channel
	window int
}

type aside struct {
	announced
	data []byte // nil if the peer has it
	copy bool
}

// announce adds a message that the peer holds.
func (u *unexpected) announce(a announced) { u.append(aside{announced: a}) }

// append reuses what was removed in front once that is half of the list: each entry is
// moved once at most for each one that is added.
func (u *unexpected) append(a aside) {
	if len(u.list) == cap(u.list) && u.head > 0 && u.head >= len(u.list)/2 {
		n := copy(u.list, u.list[u.head:])
		clear(u.list[n:])
		u.list, u.head = u.list[:n], 0
	}
	u.list = append(u.list, a)
	u.n++
}

// asideOverhead is what a copy costs besides its bytes.
const asideOverhead = 64

// add keeps room for a copy; the caller fills it.
func (u *unexpected) add(seq uint64, tag uint32, size int) []byte {
	b := make([]byte, size)
	u.append(aside{announced: announced{seq: seq, tag: tag, size: uint32(size)}, data: b, copy: true})
	u.count(size + asideOverhead)
	return b
}

// count adds n bytes to those that copies take.
func (u *unexpected) count(n int) {
	u.bytes += n
	u.ring.Withhold(u.bytes > 0 && u.bytes > u.limit-u.window)
}

// remove takes entry i out and closes the gap from the nearer end.
func (u *unexpected) remove(i int) {
	if u.list[i].copy {
		u.count(-int(u.list[i].size) - asideOverhead)
	}
	u.n--
	if last := len(u.list) - 1; i-u.head > last-i {
		copy(u.list[i:], u.list[i+1:])
		u.list[last] = aside{}
		u.list = u.list[:last]
		return
	}
	copy(u.list[u.head+1:i+1], u.list[u.head:i])
	u.list[u.head] = aside{}
	if u.head++; u.head == len(u.list) {
		u.list, u.head = u.list[:0], 0
	}
}

// bury adds a message that is lost where its number says.
func (u *unexpected) bury(seq uint64, tag uint32) {
	u.append(aside{announced: announced{seq: seq, tag: tag}})
	for i := len(u.list) - 1; i > u.head && u.list[i-1].seq > seq; i-- {
		u.list[i-1], u.list[i] = u.list[i], u.list[i-1]
	}
}

// hides reports whether in would take a message that the peer has not given, and that
// is lost if it is gone.
func (u *unexpected) hides(in *In) bool {
	for i := range u.list[u.head:] {
		if a := &u.list[u.head+i]; !a.copy && in.takes(a.tag) {
			return true
		}
	}
	return false
}

func (u *unexpected) clear() { *u = unexpected{limit: u.limit, ring: u.ring, window: u.window} }
