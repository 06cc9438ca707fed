package message

import (
	"encoding/binary"
	"fmt"

	"github.com/seed33544411/rma/eager"
	"github.com/seed33544411/rma/rdv"
)

// Kinds of ring messages (eager.Envelope.Kind).
const (
	kindPlain  = 1 // one message; Meta is its tag and the low half of its number
	kindGather = 2 // a gather of messages without tags (0)
	kindTagged = 3 // a gather whose first segment holds the tags of the others
)

func meta(tag uint32, seq uint64) uint64 { return uint64(tag)<<32 | seq&0xffffffff }

// Reasons why an advertised receive is declined.
const (
	// whySpoken: a message that travels another way takes the receive, or is too long for
	// it.
	whySpoken = 0

	// whyLate: a message that was in flight before may take it. The other bits are the low
	// bits of the number of the last such message.
	whyLate    = 1 << 31
	lateNumber = whyLate - 1
)

// Note of an advertised receive: any tag, and the number of late answers received when it
// was advertised.
const (
	noteAny   = 1 << 31
	noteEpoch = noteAny - 1
)

// tokens identify operations in flight by small numbers, from 1, that the peer returns.
// Transfers are announced with the token of the list of their messages, destinations with
// that of their receive.
type tokens[T any] struct {
	held []*T // by token less one
	free []uint32
}

// used returns the number of tokens in use.
func (t *tokens[T]) used() int { return len(t.held) - len(t.free) }

func (t *tokens[T]) put(x *T) (token uint64) {
	if len(t.free) == 0 {
		t.free = append(t.free, uint32(len(t.held)))
		t.held = append(t.held, nil)
	}
	i := t.free[len(t.free)-1]
	t.free = t.free[:len(t.free)-1]
	t.held[i] = x
	return uint64(i) + 1
}

func (t *tokens[T]) get(token uint64) *T { return t.held[token-1] }

func (t *tokens[T]) take(token uint64) *T {
	i := uint32(token - 1)
	x := t.held[i]
	t.held[i] = nil
	t.free = append(t.free, i)
	return x
}

// setupVersion changes with everything that two sides must agree on.
const setupVersion = 2 // 1: descriptors were sent in the order of their messages

// parseSetup parses the peer's Channel.Setup, which is not trusted. Errors wrap ErrSetup.
func parseSetup(b []byte) (ring eager.Setup, rendezvous rdv.Setup, err error) {
	if len(b) == 0 || b[0] != setupVersion {
		return ring, rendezvous, fmt.Errorf("%w: version %v, want %d: both sides must run the same release", ErrSetup, b[:min(1, len(b))], setupVersion)
	}
	ring, b, err = eager.ParseSetup(b[1:])
	if err == nil {
		rendezvous, b, err = rdv.ParseSetup(b)
	}
	switch {
	case err != nil:
		err = fmt.Errorf("%w: %w", ErrSetup, err)
	case len(b) > 0:
		err = fmt.Errorf("%w: %d extra bytes", ErrSetup, len(b))
	}
	return ring, rendezvous, err
}

// The first segment of a tagged gather:
//
//	byte 0      1: one tag for all messages, 2: one for each
//	byte 1...   the tags, unsigned LEB128
const (
	tagsSame = 1
	tagsEach = 2
)

// appendTags appends the tags of outs. same: all have the tag of the first.
func appendTags(b []byte, outs []*Out, same bool) []byte {
	if same {
		return binary.AppendUvarint(append(b, tagsSame), uint64(outs[0].Tag))
	}
	b = append(b, tagsEach)
	for _, o := range outs {
		b = binary.AppendUvarint(b, uint64(o.Tag))
	}
	return b
}

// sameTags reports whether all of outs have the tag of the first.
func sameTags(outs []*Out) bool {
	for _, o := range outs {
		if o.Tag != outs[0].Tag {
			return false
		}
	}
	return true
}

// tagReader returns the tags of a gather. They are copied first, because the peer may
// change the ring.
type tagReader struct {
	buf  []byte
	off  int
	same bool
	tag  uint32
}

// maxTags bounds the segment of tags in bytes: 5 each for more messages than a gather of
// the largest default ring holds.
const maxTags = 1 << 18

// none sets all tags to 0.
func (t *tagReader) none() { t.same, t.tag = true, 0 }

// reset allocates room for a segment of n bytes. The caller fills it, then calls open.
func (t *tagReader) reset(n int) ([]byte, error) {
	if n < 2 || n > maxTags {
		return nil, peerError("%d bytes of tags", n)
	}
	if cap(t.buf) < n {
		t.buf = make([]byte, n)
	}
	t.buf = t.buf[:n]
	return t.buf, nil
}

func (t *tagReader) open() (err error) {
	switch t.off = 1; t.buf[0] {
	case tagsEach:
		t.same = false
		return nil
	case tagsSame:
		t.same = false
		t.tag, err = t.next()
		t.same = true
		return err
	}
	return peerError("tags of form %d", t.buf[0])
}

// next returns the tag of the next message.
func (t *tagReader) next() (uint32, error) {
	if t.same {
		return t.tag, nil
	}
	v, n := binary.Uvarint(t.buf[t.off:])
	if n <= 0 || v > 1<<32-1 {
		return 0, peerError("tag at byte %d", t.off)
	}
	t.off += n
	return uint32(v), nil
}

// spread mixes a tag to 8 bits (Fibonacci hashing).
func spread(tag uint32) uint32 { return tag * 0x9e3779b1 >> 24 }
