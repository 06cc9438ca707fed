package message

import "encoding/binary"

// The first segment of a tagged gather:
//
//	byte 0      1: one tag for all messages, 2: one for each
//	byte 1...   the tags, unsigned LEB128
const (
	tagsSame = 1
	tagsEach = 2
)

// appendTags appends the tags of outs. same: they all have that of the first.
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

// tagReader hands out the tags of a gather. They are copied first: the ring is
// the peer's to change.
type tagReader struct {
	buf  []byte
	off  int
	same bool
	tag  uint32
}

// maxTags bounds the segment of tags in bytes: 5 each for more messages than a
// gather of the largest ring of the defaults holds.
const maxTags = 1 << 18

// none makes all tags 0.
func (t *tagReader) none() { t.same, t.tag = true, 0 }

// reset makes room for a segment of n bytes; the caller fills it, then calls
// open.
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

// next is the tag of the next message.
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
