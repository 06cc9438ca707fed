package rdv

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/testutil"
	"github.com/seed33544411/rma/scatter"
)

// owner is one side with a goroutine of its own: it sends batches, unregistered
// messages and adverts, and takes those of the peer, all at once.
type owner struct {
	s          *side
	src, dst   *memory
	plain      []byte
	plainFree  bool
	seed, peer uint64 // payloads sent, payloads expected

	place map[Handle]int // cells of messages under way
	later []Incoming
	open  []Advert
	batch map[uint64]int // cells of transfers under way, by token; -1: plain
	offer map[uint64]int // cells of adverts under way, by token

	begun, sent, got        int // messages
	offered, filled, writes int
	err                     error
}

const (
	ownerCell     = 96 << 10
	ownerMessages = 3 // of a batch
)

func newOwner(tb testing.TB, l fabric.Link, seed, peer uint64) *owner {
	o := &owner{
		seed: seed, peer: peer, plain: make([]byte, ownerCell), plainFree: true, src: newMemory(tb, l, 6, ownerCell), dst: newMemory(tb, l, 12, ownerCell),
		place: map[Handle]int{}, batch: map[uint64]int{}, offer: map[uint64]int{},
	}
	return o
}

func (o *owner) fail(err error) {
	if err != nil && o.err == nil {
		o.err = err
	}
}

func takeCell(m *memory) (int, bool) {
	if len(m.free) == 0 {
		return 0, false
	}
	c := m.free[len(m.free)-1]
	m.free = m.free[:len(m.free)-1]
	return c, true
}

func (o *owner) Match(m Incoming) ([]fabric.SGE, Verdict) {
	c, ok := takeCell(o.dst)
	if !ok {
		o.later = append(o.later, m)
		return nil, Later
	}
	o.place[m.Handle] = c
	return []fabric.SGE{fabric.NewSGE(o.dst.cell(c)[:m.Size], o.dst.reg.LKey())}, Take
}

func (o *owner) Received(m Incoming, err error) {
	c := o.place[m.Handle]
	delete(o.place, m.Handle)
	o.fail(err)
	if err == nil {
		o.fail(testutil.Verify(o.dst.cell(c)[:m.Size], o.peer+m.Pos, 0))
	}
	o.got++
	// Straight on to one that waits: calls from within are allowed.
	if len(o.later) > 0 {
		l := o.later[0]
		o.later = o.later[1:]
		o.place[l.Handle] = c
		o.fail(o.s.ch.Accept(l.Handle, []fabric.SGE{fabric.NewSGE(o.dst.cell(c)[:l.Size], o.dst.reg.LKey())}))
		return
	}
	o.dst.free = append(o.dst.free, c)
}

func (o *owner) Sent(token uint64, err error) {
	o.fail(err)
	c := o.batch[token]
	delete(o.batch, token)
	if c < 0 {
		o.plainFree = true
	} else {
		o.src.free = append(o.src.free, c)
	}
	o.sent++
}

func (o *owner) Advertised(a Advert) { o.open = append(o.open, a) }
func (o *owner) Revoked(Advert) bool { o.fail(errors.New("revoked, but nobody revokes")); return true }

func (o *owner) Filled(token uint64, x Answer, err error) {
	n := x.Bytes
	c := o.offer[token]
	delete(o.offer, token)
	o.fail(err)
	if n != 50000 {
		o.fail(fmt.Errorf("%d bytes written", n))
	} else {
		o.fail(testutil.Verify(o.dst.cell(c)[:n], o.peer+token, 0))
	}
	o.dst.free = append(o.dst.free, c)
	o.filled++
}

// begin starts what it can.
func (o *owner) begin(total int) (did bool) {
	if o.begun < total && len(o.src.free) > 0 && len(o.batch) < 6 {
		c, _ := takeCell(o.src)
		b := o.src.cell(c)
		d := scatter.Descriptor{}
		at := 0
		for i := range ownerMessages {
			n := (o.begun*7919 + i*10007) % (ownerCell / ownerMessages)
			seq := uint64(o.begun*ownerMessages + i)
			testutil.Fill(b[at:][:n], o.seed+seq, 0)
			d.Messages = append(d.Messages, scatter.Message{Pos: seq, Size: uint32(n)})
			at += n
		}
		if at > 0 {
			d.Regions = []scatter.Region{{Addr: fabric.Addr(b), Len: uint32(at), RKey: o.src.reg.Key().RKey}}
		}
		token := uint64(o.begun)
		o.batch[token] = c
		_, res, err := o.s.ch.Send(&d, 0, token)
		o.fail(err)
		if res == Accepted {
			o.begun++
			did = true
		} else {
			delete(o.batch, token)
			o.src.free = append(o.src.free, c)
		}
	}
	if o.plainFree && o.begun < total {
		seq := uint64(o.begun * ownerMessages)
		n := len(o.plain) - o.begun*977%5000
		testutil.Fill(o.plain[:n], o.seed+seq, 0)
		token := uint64(o.begun)
		o.batch[token] = -1
		_, res, err := o.s.ch.SendUnregistered(seq, o.plain[:n], Copy, 0, token)
		o.fail(err)
		if res == Accepted {
			o.begun, o.plainFree, did = o.begun+1, false, true
		} else {
			delete(o.batch, token)
		}
	}
	if o.offered < total/4 && len(o.dst.free) > 6 {
		c, _ := takeCell(o.dst)
		token := 1<<40 + uint64(o.offered)
		k := fabric.RemoteKey{Addr: fabric.Addr(o.dst.cell(c)), Len: ownerCell, RKey: o.dst.reg.Key().RKey}
		o.offer[token] = c
		_, res, err := o.s.ch.Advertise(Want{Pos: token}, k, token)
		o.fail(err)
		if res == Accepted {
			o.offered++
			did = true
		} else {
			o.dst.free = append(o.dst.free, c)
		}
	}
	if len(o.open) > 0 && len(o.src.free) > 0 {
		a := o.open[0]
		c, _ := takeCell(o.src)
		testutil.Fill(o.src.cell(c)[:50000], o.seed+a.Pos, 0)
		token := 1<<50 + uint64(o.writes)
		o.batch[token] = c
		res, err := o.s.ch.Write(a.ID, 1, 2, []fabric.SGE{fabric.NewSGE(o.src.cell(c)[:50000], o.src.reg.LKey())}, token)
		o.fail(err)
		if res == Accepted {
			o.open = o.open[1:]
			o.writes++
			did = true
		} else {
			delete(o.batch, token)
			o.src.free = append(o.src.free, c)
		}
	}
	return did
}

// run works until everything of this side is done.
func (o *owner) run(total int) error {
	end := time.Now().Add(testutil.Limit)
	var sp cpu.Spinner
	for o.err == nil && (o.begun < total || o.filled < total/4 || o.writes < total/4 || !o.s.ch.Idle()) {
		did := o.begin(total)
		o.s.poll()
		moved, err := o.s.ch.Progress()
		o.fail(err)
		if did || moved {
			sp.Reset()
			continue
		}
		if sp.Wait(); time.Now().After(end) {
			return fmt.Errorf("stuck: begun %d, sent %d, got %d, filled %d: %+v", o.begun, o.sent, o.got, o.filled, o.s.ch.Stats())
		}
	}
	return o.err
}

// Two goroutines, each the owner of its link, with everything going both ways
// at once.
func TestTwoOwners(t *testing.T) {
	for name, open := range realLinks {
		t.Run(name, func(t *testing.T) { twoOwners(t, open, 60) })
	}
}

func twoOwners(t *testing.T, open opener, total int) {
	la, lb := open(t)
	a, b := newOwner(t, la, 1<<60, 1<<61), newOwner(t, lb, 1<<61, 1<<60)
	o := Options{Chunk: 20000, FirstChunk: 5000, Staging: 64 << 10, Transfers: 5, Adverts: 3}
	a.s, b.s = pairOn(t, la, lb, a, b, o, o)
	// Which sends become batches depends on the course of things: the messages
	// are counted by the sender.
	counts := [2]chan int{make(chan int, 1), make(chan int, 1)}
	errs := make(chan error, 2)
	stop := make(chan struct{})
	own := func(x *owner, mine, theirs chan int) {
		err := x.run(total)
		mine <- x.messages()
		if err == nil {
			err = x.wait(theirs)
		}
		errs <- err
		// A side that is done goes on until the other is: links whose target does
		// the work need it.
		for {
			select {
			case <-stop:
				errs <- nil
				return
			default:
				_ = x.s.turn()
				cpu.Yield()
			}
		}
	}
	go own(a, counts[0], counts[1])
	go own(b, counts[1], counts[0])
	err := errors.Join(<-errs, <-errs)
	close(stop)
	<-errs
	<-errs
	require.NoError(t, err)
	require.Positive(t, a.s.ch.Stats().Chunks)
	require.Positive(t, b.s.ch.Stats().Written)
}

// messages is how many the peer will get.
func (o *owner) messages() int { return o.begun*ownerMessages - o.plainSent()*(ownerMessages-1) }

// plainSent is how many of the transfers were unregistered.
func (o *owner) plainSent() int { return int(o.s.ch.Stats().Offers) }

// wait goes on until the peer's messages have come, whose number it says when
// it has begun them all.
func (o *owner) wait(count chan int) error {
	want := -1
	end := time.Now().Add(testutil.Limit)
	var sp cpu.Spinner
	for o.err == nil && (want < 0 || o.got < want || !o.s.ch.Idle()) {
		select {
		case want = <-count:
		default:
		}
		if err := o.s.turn(); err != nil {
			return err
		}
		o.begin(0)
		if sp.Wait(); time.Now().After(end) {
			return fmt.Errorf("stuck: got %d of %d: %+v", o.got, want, o.s.ch.Stats())
		}
	}
	if o.err == nil && o.got != want {
		return fmt.Errorf("got %d of %d", o.got, want)
	}
	return o.err
}
