package message

// unexpected holds messages that nobody has asked for, in order: copies of
// small ones, and announced ones that the peer still has.
type unexpected struct {
	list  []aside
	n     int
	bytes int
	limit int
}

type aside struct {
	announced
	data []byte // nil if the peer has it
	copy bool
}

// announce adds a message that the peer holds.
func (u *unexpected) announce(a announced) {
	u.list = append(u.list, aside{announced: a})
	u.n++
}

// room reports whether a copy of size bytes may be kept. Empty ones count too:
// nothing is free.
func (u *unexpected) room(size int) bool { return u.bytes+size+asideOverhead <= u.limit }

const asideOverhead = 64

// add keeps room for a copy; the caller fills it.
func (u *unexpected) add(seq uint64, tag uint32, size int) []byte {
	b := make([]byte, size)
	u.list = append(u.list, aside{announced: announced{seq: seq, tag: tag, size: uint32(size)}, data: b, copy: true})
	u.n++
	u.bytes += size + asideOverhead
	return b
}

func (u *unexpected) remove(i int) {
	if u.list[i].copy {
		u.bytes -= int(u.list[i].size) + asideOverhead
	}
	copy(u.list[i:], u.list[i+1:])
	u.list[len(u.list)-1] = aside{}
	u.list = u.list[:len(u.list)-1]
	u.n--
}

func (u *unexpected) clear() { u.list, u.n, u.bytes = nil, 0, 0 }

// takeAside gives in the first message put aside that it asks for.
func (c *Channel) takeAside(in *In) bool {
	for i := range c.unexp.list {
		a := &c.unexp.list[i]
		if !in.takes(a.tag) {
			continue
		}
		if in.Source != nil {
			if in = in.Source.Take(c.opt.From, a.tag, int(a.size), a.copy); in == nil {
				return false
			}
		}
		in.From = c.opt.From
		if in.Peek {
			c.peeked(in, a.tag, int(a.size))
			return true
		}
		if in.Refuse == nil && int(a.size) > len(in.Buf) && (in.Use == nil || !a.copy) {
			c.received(in, a.tag, 0, shortBuffer(int(a.size), in))
			return true
		}
		if !a.copy {
			what := a.announced
			c.unexp.remove(i)
			c.accept(in, what)
			return true
		}
		data, tag := a.data, a.tag
		c.unexp.remove(i)
		if in.Use != nil {
			part := [1][]byte{data}
			in.Use(tag, part[:])
		} else {
			copy(in.Buf, data)
		}
		c.received(in, tag, len(data), nil)
		return true
	}
	return false
}
