package pingpong

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/rdv"
	"github.com/seed33544411/rma/scatter"
)

// Rendezvous plays single large messages over a rendezvous channel of its own, in either of
// its two ways: the receiver reads an announced message, or the sender writes to an
// advertised receive. Ownership and order of calls are those of Side.
type Rendezvous struct {
	link fabric.Link
	ep   fabric.Endpoint
	ch   *rdv.Channel
	reg  fabric.Region
	opt  Options

	desc scatter.Descriptor
	src  [1]fabric.SGE
	dst  [1]fabric.SGE

	got, sent, seen counter // messages received, sources that may be reused, adverts of the peer: odd while one is unused
	want            int     // value of got to wait for; a fast peer may be ahead of Play
	advert          rdv.ID
	seq             uint64

	wait wait
	cs   [32]fabric.Completion
}

// OpenRendezvous creates a side over a connected endpoint. Options.Span is the size of the
// largest message; Options.Channel is not used. Setup path.
func OpenRendezvous(link fabric.Link, ep fabric.Endpoint, o Options, tag uint16) (*Rendezvous, error) {
	o.Span = (max(o.Span, 1) + 4095) &^ 4095
	o.Stall = cmp.Or(o.Stall, 20*time.Second)
	r := &Rendezvous{link: link, ep: ep, opt: o, wait: newWait(&o)}
	var err error
	if r.reg, err = link.Alloc(2*o.Span, fabric.AccessAll); err != nil {
		return nil, fmt.Errorf("memory for the batches: %w", err)
	}
	mem := r.reg.Bytes()
	for i := range mem[:o.Span] {
		mem[i] = byte(i*7 + i>>8 + 1)
	}
	clear(mem[o.Span:])
	if r.ch, err = rdv.Open(link, ep, rdvHandler{r}, rdv.Options{IDTag: tag}); err != nil {
		return nil, errors.Join(err, r.reg.Close())
	}
	return r, nil
}

// Setup returns the argument of the peer's Connect.
func (r *Rendezvous) Setup() []byte { s := r.ch.Setup(); return s.Append(nil) }

// Connect connects with the peer, whose Setup it needs.
func (r *Rendezvous) Connect(b []byte) error {
	s, rest, err := rdv.ParseSetup(b)
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("%w: %d extra bytes", ErrWrong, len(rest))
	}
	if err != nil {
		return err
	}
	return r.ch.Connect(s)
}

// Close closes the endpoint and releases the rest.
func (r *Rendezvous) Close() error {
	err := r.ep.Close()
	for range 64 { // take the flushed completions
		if r.link.Poll(r.cs[:]) == 0 {
			break
		}
	}
	return errors.Join(err, r.ch.Close(), r.reg.Close())
}

// Play plays len(times) round trips of one message of size bytes; the first side stores
// half of the time of each. With receiverFirst every destination is advertised before its
// trip begins, which is not timed; otherwise the receiver reads.
func (r *Rendezvous) Play(ctx context.Context, size int, receiverFirst bool, times []int64) error {
	if size < 1 || size > r.opt.Span {
		return fmt.Errorf("%w: %d bytes, want 1 to %d", ErrSpan, size, r.opt.Span)
	}
	mem := r.reg.Bytes()
	r.src[0] = fabric.NewSGE(mem[:size], r.reg.LKey())
	if receiverFirst {
		if err := r.advertise(size); err != nil {
			return err
		}
	}
	for i := range times {
		r.want++
		if receiverFirst {
			if err := r.wait.until(ctx, &r.seen, r.seen.n|1, r.Progress); err != nil {
				return err
			}
		}
		t := cpu.Ticks()
		if !r.opt.First {
			if err := r.wait.until(ctx, &r.got, r.want, r.Progress); err != nil {
				return err
			}
		}
		free := r.sent.n + 1
		if err := r.send(size, receiverFirst); err != nil {
			return err
		}
		if r.opt.First {
			if err := r.wait.until(ctx, &r.got, r.want, r.Progress); err != nil {
				return err
			}
			times[i] = (cpu.Ticks() - t) / 2
		}
		if receiverFirst && i+1 < len(times) {
			if err := r.advertise(size); err != nil {
				return err
			}
		}
		if err := r.wait.until(ctx, &r.sent, free, r.Progress); err != nil {
			return err
		}
	}
	return nil
}

// send sends one message.
func (r *Rendezvous) send(size int, write bool) (err error) {
	var res rdv.Result
	if write {
		r.seen.n++ // the advert is used: even
		res, err = r.ch.Write(r.advert, 0, 0, r.src[:], 0)
	} else {
		r.seq++
		r.desc.Messages = append(r.desc.Messages[:0], scatter.Message{Pos: r.seq, Size: uint32(size)})
		r.desc.Regions = append(r.desc.Regions[:0], scatter.Region{Addr: fabric.Addr(r.reg.Bytes()), Len: uint32(size), RKey: r.reg.Key().RKey})
		_, res, err = r.ch.Send(&r.desc, 0, 0)
	}
	if err == nil && res != rdv.Accepted {
		err = fmt.Errorf("rendezvous: %v with nothing outstanding", res)
	}
	if err == nil {
		_, err = r.ch.Progress()
	}
	return err
}

// advertise advertises the destination to the peer.
func (r *Rendezvous) advertise(size int) error {
	k := r.reg.Key()
	k.Addr, k.Len = k.Addr+uint64(r.opt.Span), uint64(size)
	_, res, err := r.ch.Advertise(rdv.Want{}, k, 0)
	if err == nil && res != rdv.Accepted {
		err = fmt.Errorf("rendezvous: advert: %v with nothing outstanding", res)
	}
	return err
}

// Progress polls the link and drives the channel.
func (r *Rendezvous) Progress() error {
	n := r.link.Poll(r.cs[:])
	for i := range r.cs[:n] {
		if c := &r.cs[i]; c.Op == fabric.OpDown {
			return errors.Join(fabric.ErrDown, r.ep.Err())
		} else {
			r.ch.OnCompletion(c)
		}
	}
	_, err := r.ch.Progress()
	return err
}

// Exchange is like Side.Exchange.
func (r *Rendezvous) Exchange(ctx context.Context, f func(context.Context) ([]byte, error)) ([]byte, error) {
	var down error
	return exchange(ctx, f, func() {
		if down == nil {
			down = r.Progress() // the next call of Play gets the error again
		}
	})
}

// Check verifies the size bytes received last.
func (r *Rendezvous) Check(size int) error {
	mem := r.reg.Bytes()
	for i := range size {
		if mem[i] != mem[r.opt.Span+i] {
			return fmt.Errorf("%w: byte %d of %d", ErrWrong, i, size)
		}
	}
	clear(mem[r.opt.Span:])
	return nil
}

// rdvHandler receives the callbacks of the rendezvous channel.
type rdvHandler struct{ *Rendezvous }

func (h rdvHandler) Match(m rdv.Incoming) ([]fabric.SGE, rdv.Verdict) {
	if int64(m.Size) > int64(h.opt.Span) {
		h.got.err = fmt.Errorf("%w: message of %d bytes", ErrWrong, m.Size)
		return nil, rdv.Refuse
	}
	h.dst[0] = fabric.NewSGE(h.reg.Bytes()[h.opt.Span:h.opt.Span+int(m.Size)], h.reg.LKey())
	return h.dst[:], rdv.Take
}

func (h rdvHandler) Received(_ rdv.Incoming, err error) { h.got.Complete(0, 0, err) }

func (h rdvHandler) Sent(_ uint64, err error) { h.sent.Complete(0, 0, err) }

func (h rdvHandler) Advertised(a rdv.Advert) {
	h.advert = a.ID
	h.seen.Complete(0, 0, nil) // an advert is unused: odd
}

func (h rdvHandler) Revoked(rdv.Advert) bool { h.seen.Complete(0, 0, rdv.ErrCancelled); return true }

func (h rdvHandler) Filled(_ uint64, _ rdv.Answer, err error) { h.got.Complete(0, 0, err) }
