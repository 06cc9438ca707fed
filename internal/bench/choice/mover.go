package choice

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/bench"
	"github.com/seed33544411/rma/internal/initiator"
	"github.com/seed33544411/rma/internal/offheap"
	"github.com/seed33544411/rma/internal/onesided"
	"github.com/seed33544411/rma/logp"
	"github.com/seed33544411/rma/mr"
)

// mover is one of two ranks between which pieces are put or got: the one-sided operations of
// an engine, with its progress goroutine, over the sampled link. Rank 0 starts all
// operations; rank 1 only runs its engine. Memory is registered, not allocated by the link:
// in memory that a link maps, pieces are copied, and there is no choice.
type mover struct {
	initiator.Standalone
	private []byte
	region  *mr.Registration
	there   fabric.RemoteKey

	fetched   chan func(val []byte, err error) // callbacks of FetchSlots
	published chan func() ([]byte, error)      // callbacks of PublishSlots

	places []place
	each   []*initiator.Op // operations of moveEach
}

// place is the position of a piece on each side.
type place struct{ here, there, size int }

// apart is the least distance between scattered pieces.
const apart = 256

// area returns the size of memory for pieces of these sizes on one side, scattered.
func area(sizes []int) (n int) {
	for _, s := range sizes {
		n += (s + 2*apart - 1) &^ (apart - 1)
	}
	return n
}

// openMover prepares both ranks: afterwards rank 0 can move pieces in either way.
func openMover(ctx context.Context, k *rank, span int) (m *mover, err error) {
	m = &mover{fetched: make(chan func([]byte, error), 1), published: make(chan func() ([]byte, error), 1)}
	m.EP = k.conn.EP
	k.onClose(m.close)
	if err = bench.Agree(ctx, k.polling(), m.open(k.conn.Link, span)); err != nil {
		return m, err
	}
	k.side = nil // from here on only the progress goroutine polls
	m.Prog.Start(false)
	m.Prog.Do(func() { m.Queue.Up(m.EP) })
	theirs, err := k.exchange(ctx, m.key().Append(nil))
	if err == nil {
		m.there, _, err = fabric.ParseRemoteKey(theirs)
	}
	if err == nil && m.there.Len < uint64(span) {
		err = fmt.Errorf("%w: the other rank has %d bytes, want %d", ErrGrid, m.there.Len, span)
	}
	if err = bench.Agree(ctx, k.ctl, err); err != nil {
		return m, err
	}
	return m, m.slots(ctx, k)
}

// key returns the region's key for the other rank.
func (m *mover) key() fabric.RemoteKey {
	x := m.region.Key()
	return fabric.RemoteKey{Addr: x.Addr, Len: x.Len, RKey: x.RKeys[0]}
}

func (m *mover) open(l fabric.Link, span int) (err error) {
	if err = m.Open(l, m); err != nil {
		return err
	}
	if m.private, err = offheap.Alloc(span, offheap.Regions); err != nil {
		return err
	}
	m.region, err = m.Memory.Register(m.private, fabric.AccessAll)
	return err
}

// close ends all that openMover has started, also after its failure.
func (m *mover) close() (err error) {
	err = m.Close()
	if m.private != nil {
		err = errors.Join(err, offheap.Free(m.private, offheap.Regions))
	}
	return err
}

// slots requests the slots that groups need, by a group of rank 0, and passes rank 1's
// slots to rank 0. Both ranks call it.
func (m *mover) slots(ctx context.Context, k *rank) (err error) {
	ctx, cancel := context.WithTimeout(ctx, k.req.Stall)
	defer cancel()
	if k.ctl.Rank() == 1 {
		var val []byte
		select {
		case alloc := <-m.published:
			val, err = alloc()
		case <-ctx.Done():
			err = fmt.Errorf("%w: the other rank has not requested slots", context.Cause(ctx))
		}
		if err = bench.Agree(ctx, k.ctl, err); err == nil {
			_, err = k.exchange(ctx, val)
		}
		return err
	}
	m.place([]int{8, 8}, Scattered, 0)
	m.policy(&k.params, true, logp.Group)
	var done func([]byte, error)
	if err = m.move(ctx, initiator.Put); err == nil {
		select {
		case done = <-m.fetched:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	if err = bench.Agree(ctx, k.ctl, err); err != nil {
		return err
	}
	val, err := k.exchange(ctx, nil)
	if err == nil {
		done(val, nil)
	}
	return err
}

// policy forces a way of moving pieces, or leaves the choice to the model.
func (m *mover) policy(p *logp.Params, forced bool, w logp.Way) {
	m.Prog.Do(func() { m.Queue.Plan(p, forced, w) })
}

// place chooses the positions of the pieces.
func (m *mover) place(sizes []int, layout string, seed uint64) {
	m.places = m.places[:0]
	rnd := rand.New(rand.NewPCG(seed, uint64(len(sizes))))
	scattered := func() []int {
		at, out := 0, make([]int, len(sizes))
		for _, i := range rnd.Perm(len(sizes)) {
			out[i] = at
			at += area(sizes[i : i+1])
		}
		return out
	}
	here, there := scattered(), scattered()
	at := 0
	for i, n := range sizes {
		p := place{here[i], there[i], n}
		switch layout {
		case Spread:
			p.here = at
		case Collected:
			p.there = at
		}
		at += n
		m.places = append(m.places, p)
	}
}

// walk sets c to the transfer of all pieces.
func (m *mover) walk(c *onesided.Cursor) {
	here := m.region.Key()
	for _, p := range m.places {
		c.AddLocal(onesided.Piece{Addr: here.Addr + uint64(p.here), Len: uint64(p.size), Key: m.region.LKey(0)})
		c.AddRemote(onesided.Piece{Addr: m.there.Addr + uint64(p.there), Len: uint64(p.size), Key: m.there.RKey})
	}
	c.End()
}

// requests returns the number of link requests of the pieces as a chain.
func (m *mover) requests(pieces int) (n int) {
	var c onesided.Cursor
	sges := make([]fabric.SGE, max(pieces, 1))
	for m.walk(&c); !c.Done(); n++ {
		c.Next(sges, m.Queue.Max())
	}
	return n
}

// move puts or gets all pieces and waits until they are placed.
func (m *mover) move(ctx context.Context, kind initiator.Kind) error {
	o := initiator.New(&m.Queue, kind)
	m.walk(o.Cursor())
	m.Queue.Post(o)
	return m.wait(ctx, o)
}

// wait waits for the end of o.
func (m *mover) wait(ctx context.Context, o *initiator.Op) error {
	if err := m.Prog.Wait(ctx, &o.Waiter); err != nil {
		return err
	}
	err := o.Err
	o.Claim(o.Gen())
	o.Release()
	return err
}

// moveEach puts or gets each piece by an operation of its own, without waiting in between.
func (m *mover) moveEach(ctx context.Context, kind initiator.Kind) (err error) {
	m.each = m.each[:0]
	here := m.region.Key()
	for _, p := range m.places {
		o := initiator.New(&m.Queue, kind)
		o.Local(fabric.SGE{Addr: here.Addr + uint64(p.here), Len: uint32(p.size), LKey: m.region.LKey(0)})
		o.Remote(m.there.Addr+uint64(p.there), m.there.RKey)
		m.Queue.Post(o)
		m.each = append(m.each, o)
	}
	for _, o := range m.each {
		err = errors.Join(err, m.wait(ctx, o))
	}
	return err
}

// whole puts or gets the complete region.
func (m *mover) whole(ctx context.Context, kind initiator.Kind) error {
	all := m.places
	defer func() { m.places = all }()
	m.places = []place{{0, 0, len(m.private)}}
	return m.move(ctx, kind)
}

// check moves pieces of new content once by move, and checks that they have arrived and that
// no other byte has changed.
func (m *mover) check(ctx context.Context, kind initiator.Kind, move func(context.Context, initiator.Kind) error, turn uint64) error {
	fill := func(n uint64) {
		for i := 0; i+8 <= len(m.private); i += 8 {
			n = n*6364136223846793005 + 1442695040888963407
			binary.LittleEndian.PutUint64(m.private[i:], n)
		}
	}
	fill(2*turn + 1)
	want := bytes.Clone(m.private) // expected at the other rank
	err := m.whole(ctx, initiator.Put)
	fill(2 * turn)
	mine := bytes.Clone(m.private)
	from, to := mine, want
	if kind == initiator.Get {
		from, to = want, mine
	}
	for _, p := range m.places {
		a, b := p.here, p.there
		if kind == initiator.Get {
			a, b = b, a
		}
		copy(to[b:b+p.size], from[a:a+p.size])
	}
	if err == nil {
		err = move(ctx, kind)
	}
	if err == nil && !bytes.Equal(m.private, mine) {
		err = fmt.Errorf("%w: of this rank", bench.ErrValidate)
	}
	if err == nil {
		err = m.whole(ctx, initiator.Get)
	}
	if err == nil && !bytes.Equal(m.private, want) {
		err = fmt.Errorf("%w: of the other rank", bench.ErrValidate)
	}
	return err
}

// FetchSlots implements initiator.Host.
func (m *mover) FetchSlots(done func(val []byte, err error)) { m.fetched <- done }

// PublishSlots implements initiator.Host.
func (m *mover) PublishSlots(alloc func() ([]byte, error)) {
	select {
	case m.published <- alloc:
	default: // a second request needs no answer
	}
}
