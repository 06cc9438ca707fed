package message

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/logp"
	"github.com/seed33544411/rma/rdv"
	"github.com/seed33544411/rma/scatter"
)

// The rendezvous stream: messages that the peer fetches, and messages that are written to
// receives that it advertised.

// announce sends descriptors of the messages that the peer is to fetch, in order. It
// returns the number of the first message that could not be announced, which messages of
// the ring must not overtake, and whether all were announced.
func (s *sender) announce() (stop uint64, all bool) {
	most := int(s.model.limits.ScatterSegs)
	d := &s.desc
	end := len(s.batch.first)
	if s.rendezvous.Left() <= end {
		// Messages planned for the ring are announced if it stays full. The peer must have
		// room for them then, because nothing overtakes them.
		end = s.batch.firstInRing()
	}
	for i := 0; i < end; {
		if s.batch.modes[i] != logp.Scatter {
			i++
			continue
		}
		d.Messages, d.Regions, s.group = d.Messages[:0], d.Regions[:0], s.group[:0]
		var head, tail *Out
		for ; i < end && len(d.Messages) < most; i++ {
			if s.batch.modes[i] != logp.Scatter {
				continue
			}
			o := s.batch.first[i]
			if head != nil && (o.Tag != head.Tag || o.Sync || head.Sync || s.railed(len(o.Data)) || s.railed(len(head.Data))) {
				break // a descriptor ends when all its messages have been fetched
			}
			if err := s.describe(o); err != nil {
				if head != nil {
					break // announce these, then handle o
				}
				if !s.sendCopied(o) {
					return o.seq, false
				}
				s.batch.gone[i] = true
				continue
			}
			if o.next = nil; head == nil {
				head = o
			} else {
				tail.next = o
			}
			tail = o
			s.group = append(s.group, i)
		}
		if head == nil {
			continue
		}
		token := s.groups.put(head)
		var keys *rdv.RailKeys
		if s.railed(len(head.Data)) {
			keys = head.railKeys(s.opt.Rails)
		}
		_, res, err := s.rendezvous.SendRails(d, keys, head.Tag, token)
		if err != nil || res != rdv.Accepted {
			s.groups.take(token)
			if err != nil {
				s.fail(err)
			}
			s.announceBusy = true
			return head.seq, false
		}
		s.unflushed = true
		s.stats.Descriptors++
		if s.learn.sign {
			s.learn.token = token
		} else {
			s.learn.left -= learnDescriptor - learnPlanned
		}
		s.count(logp.Scatter, len(d.Messages))
		for _, k := range s.group {
			s.batch.gone[k] = true
		}
	}
	if i := slices.Index(s.batch.modes[end:], logp.Scatter); i >= 0 {
		return s.batch.first[end+i].seq, false
	}
	return math.MaxUint64, true
}

// describe appends a message and its memory to the descriptor, and registers the memory if
// necessary.
func (s *sender) describe(o *Out) error {
	m := scatter.Message{Pos: o.seq, Size: uint32(len(o.Data))}
	if len(o.Data) > 0 {
		rkey := o.RKey
		if !o.Registered {
			if err := s.register(o); err != nil {
				return err
			}
			rkey = o.pin.rkey
		}
		at := fabric.Addr(o.Data)
		r := s.desc.Regions
		if n := len(r); n > 0 && r[n-1].RKey == rkey && r[n-1].Addr+uint64(r[n-1].Len) == at &&
			uint64(r[n-1].Len)+uint64(len(o.Data)) <= math.MaxUint32 {
			r[n-1].Len += uint32(len(o.Data))
		} else {
			s.desc.Regions = append(r, scatter.Region{Addr: at, Len: uint32(len(o.Data)), RKey: rkey})
		}
	}
	s.desc.Messages = append(s.desc.Messages, m)
	return nil
}

// sendCopied announces a message whose memory is not to be registered, or cannot be: it is
// copied, chunk by chunk, to registered memory.
func (s *sender) sendCopied(o *Out) bool {
	o.next = nil
	token := s.groups.put(o)
	_, res, err := s.rendezvous.SendUnregistered(o.seq, o.Data, rdv.Copy, o.Tag, token)
	if err != nil || res != rdv.Accepted {
		s.groups.take(token)
		if err != nil {
			s.fail(errors.Join(errNoMemory, err))
		}
		s.announceBusy = true
		return false
	}
	s.unflushed = true
	s.stats.Copied++
	s.count(logp.Scatter, 1)
	return true
}

// write writes messages to their advertised destinations. It returns the number of the
// first message that could not be written, and whether all were written.
func (s *sender) write() (stop uint64, all bool) {
	stop = math.MaxUint64
	for i, o := range s.batch.first {
		if s.batch.modes[i] != direct {
			continue
		}
		// Sources are registered even if the write has to wait: a source that cannot be
		// registered is announced in its turn.
		src, err := s.source(o)
		if err != nil {
			s.decline(o.want, whySpoken)
			o.wanted, s.batch.modes[i] = false, logp.Scatter
			continue
		}
		if stop != math.MaxUint64 {
			continue
		}
		o.next = nil
		token := s.groups.put(o)
		s.batch.gone[i] = true // Write may call Sent
		res, err := s.rendezvous.Write(o.want, o.seq, o.Tag, src, token)
		if err != nil || res != rdv.Accepted {
			s.groups.take(token)
			s.batch.gone[i] = false
			if err != nil {
				s.fail(err)
			}
			s.writeBusy = true
			stop = o.seq
			continue
		}
		s.unflushed = true
		s.stats.Written++
		s.count(logp.Scatter, 1)
	}
	return stop, stop == math.MaxUint64
}

// source returns the memory of o, registered; it is valid until the next call.
func (s *sender) source(o *Out) ([]fabric.SGE, error) {
	if len(o.Data) == 0 {
		return nil, nil
	}
	var err error
	if !o.Registered {
		err = s.register(o)
	}
	if err == nil {
		s.src[0], err = o.source(s.pins)
	}
	return s.src[:], err
}

// sendHandler receives the calls of the rendezvous channel for a sender.
type sendHandler sender

// Advertised accepts a destination, or declines it: an earlier message may take the
// receive, unless that message takes another one, or was delivered before the peer
// advertised.
func (h *sendHandler) Advertised(a rdv.Advert) {
	s := (*sender)(h)
	d := &s.dests
	anyTag := a.Note&noteAny != 0
	behind := (d.late - a.Note) & noteEpoch
	if a.Pos == 0 || a.Pos > s.seq+1 || anyTag && a.Tag != 0 || behind > noteEpoch/2 {
		s.refuse(peerError("receive advertised for messages from %d on, tag %#x, note %#x; %d were sent", a.Pos, a.Tag, a.Note, s.seq))
		return
	}
	last := d.last(anyTag, a.Tag)
	if behind != 0 || last >= a.Pos {
		d.late++
		s.decline(a.ID, whyLate|uint32(last)&lateNumber)
		return
	}
	d.open = append(d.open, destination{id: a.ID, tag: a.Tag, len: a.Len, any: anyTag})
}

// Revoked returns an advertised receive that is not assigned to a message. Later adverts
// that compete with it are declined as late: this side no longer knows which messages they
// take.
func (h *sendHandler) Revoked(a rdv.Advert) bool {
	s := (*sender)(h)
	d := &s.dests
	at := slices.IndexFunc(d.open, func(x destination) bool { return x.id == a.ID })
	if at < 0 {
		return false
	}
	x, kept := d.open[at], d.open[:at]
	d.late++
	for _, y := range d.open[at+1:] {
		if !x.any && !y.any && x.tag != y.tag {
			kept = append(kept, y)
			continue
		}
		d.late++
		s.decline(y.id, whyLate|uint32(d.last(y.any, y.tag))&lateNumber)
	}
	d.open = kept
	return true
}

// decline notifies the peer that no message is written to an advertised receive.
func (s *sender) decline(id rdv.ID, why uint32) {
	s.unflushed = true
	if err := s.rendezvous.Decline(id, why); err != nil {
		s.refuse(err)
	}
}

// assign finds the advertised receive for o, once for every message, in the order of their
// numbers. It decides exactly as the peer's matching does: receives that are too short for
// o end without it.
func (s *sender) assign(o *Out) {
	if o.assigned {
		return
	}
	o.assigned = true
	d := &s.dests
	for i := 0; i < len(d.open); {
		x := d.open[i]
		if !x.takes(o.Tag) {
			i++
			continue
		}
		d.open = append(d.open[:i], d.open[i+1:]...)
		switch {
		case uint64(len(o.Data)) > uint64(x.len):
			s.decline(x.id, whySpoken)
			continue
		case len(o.Data) < s.model.writeFrom:
			s.decline(x.id, whySpoken)
		default:
			o.want, o.wanted = x.id, true
		}
		return
	}
	d.pass(o.Tag, o.seq)
}

// Source implements rdv.Carrier.
func (h *sendHandler) Source(token uint64) (src fabric.SGE, rkey uint32, ok bool) {
	s := (*sender)(h)
	o := s.groups.get(token)
	if len(o.Data) == 0 {
		return src, 0, false
	}
	src, err := o.source(s.pins)
	if rkey = o.RKey; !o.Registered {
		rkey = o.pin.rkey
	}
	return src, rkey, err == nil
}

// Sent ends a transfer of this side.
func (h *sendHandler) Sent(token uint64, err error) {
	s := (*sender)(h)
	if token == s.learn.token {
		s.learn.fetched(err)
	}
	refused := errors.Is(err, rdv.ErrRefused)
	for i, o := 0, s.groups.take(token); o != nil; i++ {
		next, why := o.next, err
		switch {
		case refused && s.rendezvous.Refused(i):
			why = fmt.Errorf("%w: %w", ErrUnwanted, err)
		case refused:
			why = nil
		}
		s.sent(o, why)
		o = next
	}
}
