package rma

import (
	"cmp"
	"errors"
	"runtime/trace"
	"sync/atomic"
	"time"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/bringup"
	"github.com/seed33544411/rma/internal/initiator"
	"github.com/seed33544411/rma/internal/message/hub"
	"github.com/seed33544411/rma/internal/onesided"
	"github.com/seed33544411/rma/internal/pending"
	"github.com/seed33544411/rma/mr"
)

// Peer is a rank of the job, possibly this one, as the target of operations. Its methods
// may be called from any goroutine.
//
// It has one method for each operation, in a file named after the operation; each method
// checks its arguments and passes the operation to internal/initiator or
// internal/message/hub.
type Peer struct {
	eng  *Engine
	rank int
	link int // index of the link that reaches it
	num  uint8

	own  bool // this process itself
	conn *bringup.Connector

	// Owner's.
	id      uint32          // of ep
	ep      fabric.Endpoint // nil until connected
	self    fabric.Endpoint // the passive end of this rank's connection with itself
	down    error           // why the connection has ended
	refused error           // why the peer was asked to end it, or will
	noticed chan struct{}   // closed when down is set; nil if no goroutine waits for that
	hangUp  func()          // ends the opening of the message channel
	pulse   pulse

	rails  [mr.MaxRails]railEnd // further connections, from 1
	railed bool                 // there may be some

	unaided atomic.Bool
	over    atomic.Pointer[carrier]            // of the last connection; nil: there was none
	opening atomic.Pointer[bringup.Connection] // the message channel, on which

	one     initiator.Queue
	msg     hub.Conversation
	budget  pending.Budget // of both
	library pending.Budget // of messages and signals of libraries
}

// carrier describes the link over which a connection was made: mostly that of the peer.
type carrier struct {
	name    string
	atomics bool // exclude those of other ranks on memory of the peer
}

// railEnd is this side of a rail. ep and lost are the owner's; the rest does not change.
type railEnd struct {
	has  bool
	link int   // index
	num  uint8 // in keys
	ep   fabric.Endpoint
	lost uint64 // times that it was connected and ended before the connection

	// Of rail 0, on a link that resumes connections.
	outages uint64 // those of ep that are in lost
	out     bool   // there is no connection at present
}

// reportDown notes the end of a connection that the link reports, with the
// endpoint's own reason.
func (p *Peer) reportDown(err error) {
	switch {
	case whyRefused(p) != nil: // on this side's request
		err = p.refused
	case p.ep != nil:
		switch why := p.ep.Err(); {
		case why != nil && errors.Is(err, fabric.ErrDown):
			err = why // ErrDown refers to it
		case why != nil:
			err = because(err, why)
		}
	}
	if err == nil {
		err = fabric.ErrDown
	}
	p.downWith(err)
}

// refusedBy records that this side has refused a request of p with err: p will close the
// connection, on all rails. Owner's.
func refusedBy(p *Peer, err error) {
	p.eng.prog.AssertOwned()
	p.refused = cmp.Or(p.refused, because(ErrFlushed, err))
}

// whyRefused returns why p closes the connection, if that is a request that this side has
// refused. The link may not have reported a refusal on a rail yet. Owner's.
func whyRefused(p *Peer) error {
	p.eng.prog.AssertOwned()
	for i := range p.rails {
		if ep := p.rails[i].ep; ep != nil && errors.Is(ep.Err(), ErrRemoteAccess) {
			refusedBy(p, ep.Err())
		}
	}
	return p.refused
}

// downWith records that the connection with p has ended, and fails the operations that have
// not been posted to the link. Posted ones are flushed.
//
// ErrPeerGone takes precedence, also if it is reported later: a device refuses access to a
// dying process before its death is known.
func (p *Peer) downWith(err error) {
	if p.down == nil || errors.Is(err, ErrPeerGone) && !errors.Is(p.down, ErrPeerGone) && !errors.Is(p.down, ErrClosed) {
		p.down = err
		if !errors.Is(err, ErrPeerGone) && !errors.Is(err, ErrPeerHung) && !errors.Is(err, ErrClosed) && !errors.Is(err, ErrNoConnection) {
			p.down = because(ErrFlushed, err)
		}
		if s := stateOf(err); s != 0 && !p.own {
			p.eng.watches.tell(PeerEvent{Rank: p.rank, State: s, Err: p.down})
		}
	}
	if p.noticed != nil {
		close(p.noticed)
		p.noticed = nil
	}
	p.one.Down(p.down)
	p.msg.Down(p.down)
	if end := p.hangUp; end != nil {
		p.hangUp = nil
		wait := min(lastWait, p.eng.cfg.PeerTimeout)
		if errors.Is(err, ErrNoConnection) {
			wait = 0 // a peer that has refused sends nothing
		}
		time.AfterFunc(wait, end)
	}
}

// close ends the connection; operations in flight are flushed. Owner's.
func (p *Peer) close() {
	p.eng.prog.AssertOwned()
	for _, ep := range []fabric.Endpoint{p.ep, p.self} {
		if ep != nil {
			_ = ep.Close() // errors are reported by the requests
		}
	}
	for i := range p.rails {
		if r := &p.rails[i]; r.ep != nil {
			_ = r.ep.Close()
			r.ep = nil
			p.one.Rails().Down(i)
			p.eng.railWatches.tell(p.rank, i, r.lost, cmp.Or(p.down, ErrClosed))
		}
	}
	if _, is := p.ep.(fabric.Rejoiner); is && !errors.Is(p.down, ErrPeerGone) && !errors.Is(p.down, ErrClosed) {
		p.conn.Now().Rejoin() // tells the peer, whose device may notice nothing
	}
}

// lastWait bounds how long the report that a rank is gone is held back for the data that
// the rank sent before.
const lastWait = 250 * time.Millisecond

// pulse is this side's view of a peer's heartbeat. Owner's.
type pulse struct {
	word     fabric.RemoteKey // Len is 0: there is none to read
	limit    time.Duration    // silence after which the peer hangs
	seen     uint64
	silent   time.Duration // time that this side has watched the word without seeing a change
	asked    bool          // a read is to be posted, or in flight
	looking  bool          // the word was checked in the last round
	notified bool          // watchers have been notified of the silence
	await    bool          // a WaitSignal waits for a signal of the peer
	used     uint64        // operations in the last round
}

// Peer returns the peer of that rank, which may be this process. It panics if there is no
// such rank.
func (e *Engine) Peer(rank int) *Peer { return e.peers[rank] }

// Rank returns the peer's rank.
func (p *Peer) Rank() int { return p.rank }

// Link returns the name of the link that reaches the peer: "shm", "tcp", "ibv" or "sim"; "tcp" as well for a peer
// that is reached by verbs otherwise, while it is connected over tcp because verbs was lost.
func (p *Peer) Link() string {
	if c := p.over.Load(); c != nil {
		return c.name
	}
	return p.eng.links[p.link].Name()
}

// StateOf returns the last change of p's state, as Engine.Watch reports it; zero if there was none. A
// message of p that is handled now came over a connection that was not lost before the Lost-th loss.
func StateOf(p *Peer) PeerEvent { return p.eng.watches.state(p.rank) }

// Unaided reports whether this side accesses all of the peer's memory without the peer's
// process: gets then complete soon even if that process is stopped. It returns false before
// there is a connection.
func (p *Peer) Unaided() bool { return p.unaided.Load() }

// Span is a range of a peer's memory.
type Span struct {
	at Remote
	n  int
}

// Span returns the range of n bytes that begins at r. An operation refuses a range that
// exceeds the key's region (ErrBounds).
func (r Remote) Span(n int) Span { return Span{at: r, n: n} }

// Slice returns the range of n bytes that begins off bytes into the region.
func (k Key) Slice(off, n int) Span { return k.At(off).Span(n) }

// Put copies src to dst, in the peer's memory. The request is complete when the data has
// been placed there; until then src belongs to the engine. Errors come with the request:
// see PeerError. A rank that puts to itself must not let src and dst overlap; the same holds for
// Get, and for the pieces of PutV, GetV and their like. Put does not allocate or block.
// Hot path.
func (p *Peer) Put(dst Remote, src Buffer) Request {
	return p.move(initiator.Put, dst, src)
}

// Get copies src, as many bytes as dst has, from the peer's memory to dst. The request is
// complete when dst holds the data; until then dst belongs to the engine. Get does not
// allocate or block.
// Hot path.
func (p *Peer) Get(dst Buffer, src Remote) Request {
	return p.move(initiator.Get, src, dst)
}

func (p *Peer) move(k initiator.Kind, remote Remote, local Buffer) Request {
	if uint64(local.n) > p.one.Max() {
		return p.moveLong(k, remote, local)
	}
	sge, err := local.sge(p.eng, p.link)
	if err != nil {
		return p.refuse(k.String(), err)
	}
	addr, rkey, err := p.reach(remote, uint64(local.n), right(k))
	if err != nil {
		return p.refuse(k.String(), err)
	}
	if local.n <= initiator.InlineMax && local.n > 0 && p.tries() {
		if n := p.one.TryMove(k, local.region.reg, sge, addr, rkey); n != 0 {
			return newReceipt(p.eng, n)
		}
	}
	o := initiator.New(&p.one, k)
	o.Needs(local.region.reg)
	o.Local(sge)
	o.Remote(addr, rkey)
	if p.railed && (local.n >= initiator.DivideFrom || initiator.Elsewhere(&p.one, local.n)) {
		divide(p, o, remote, local)
	}
	return p.post(o)
}

// divide lets the engine divide a put or a get, whose arguments have been checked, over the
// rails, or choose one of them.
func divide(p *Peer, o *initiator.Op, remote Remote, local Buffer) {
	keys := railKeys(p, remote)
	ownKeys(p, &keys, local)
	o.Divide(&keys)
}

// railKeys returns the keys of remote memory on all connections.
func railKeys(p *Peer, remote Remote) (keys [mr.MaxRails]initiator.PartKeys) {
	there := remote.key.contents
	keys[0] = initiator.PartKeys{RKey: there.RKeys[p.num], Link: p.link, Has: true}
	for i := range p.rails {
		if r := &p.rails[i]; r.has && there.Rails>>r.num&1 != 0 {
			keys[i] = initiator.PartKeys{RKey: there.RKeys[r.num], Link: r.link, Has: true}
		}
	}
	return keys
}

// ownKeys sets the keys of local memory.
func ownKeys(p *Peer, keys *[mr.MaxRails]initiator.PartKeys, local Buffer) {
	for i := range keys {
		if k := &keys[i]; k.Has {
			sge, err := local.sge(p.eng, k.Link)
			k.LKey, k.Has = sge.LKey, err == nil
		}
	}
}

// moveLong is move for a transfer that is too long for one request.
func (p *Peer) moveLong(k initiator.Kind, remote Remote, local Buffer) Request {
	o := initiator.New(&p.one, k)
	if err := p.long(o, remote, local); err != nil {
		return p.drop(o, err)
	}
	return p.post(o)
}

// long sets o to a contiguous transfer that takes several requests.
func (p *Peer) long(o *initiator.Op, remote Remote, local Buffer) error {
	s, err := local.piece(p.eng, p.link)
	if err != nil {
		return err
	}
	addr, rkey, err := p.reach(remote, s.Len, right(o.Kind()))
	if err != nil {
		return err
	}
	o.Needs(local.region.reg)
	c := o.Cursor()
	c.AddLocal(s)
	c.AddRemote(onesided.Piece{Addr: addr, Len: s.Len, Key: rkey})
	c.End()
	if first := (Buffer{region: local.region, off: local.off, n: initiator.DivideFrom}); p.railed && o.Kind() <= initiator.Get {
		if sge, err := first.sge(p.eng, p.link); err == nil {
			keys := railKeys(p, remote)
			ownKeys(p, &keys, first)
			o.DivideLong(&keys, sge, addr)
		}
	}
	return nil
}

// PutBytes is Put from memory that need not be registered and may lie in the Go heap.
// Small slices are copied. Larger ones are pinned and registered until the request is
// complete, and stay registered for later use within Config.PinnedLimit. Until completion
// src belongs to the engine. Put from registered memory costs less.
func (p *Peer) PutBytes(dst Remote, src []byte) Request { return p.user(initiator.Put, dst, src) }

// GetBytes is Get into memory that need not be registered: see PutBytes.
func (p *Peer) GetBytes(dst []byte, src Remote) Request { return p.user(initiator.Get, src, dst) }

func (p *Peer) user(k initiator.Kind, at Remote, mem []byte) Request {
	addr, rkey, err := p.reach(at, uint64(len(mem)), right(k))
	if err != nil {
		return p.refuse(k.String(), err)
	}
	if n := len(mem); n > 0 && n <= initiator.InlineMax && p.tries() {
		if n := initiator.TryBytes(&p.one, k, mem, addr, rkey); n != 0 {
			return newReceipt(p.eng, n)
		}
	}
	o := initiator.New(&p.one, k)
	o.Remote(addr, rkey)
	if len(mem) > 0 {
		o.Memory(mem)
	}
	if p.railed && len(mem) >= initiator.DivideFrom {
		keys := railKeys(p, at)
		o.Divide(&keys)
	}
	return p.post(o)
}

// tries reports whether operations may complete within the call. They do not while an
// execution trace runs, because traces have regions for their waits.
func (p *Peer) tries() bool { return p.one.Immediate() && !p.eng.closed.Load() && !trace.IsEnabled() }

// right returns the right that an operation needs.
func right(k initiator.Kind) fabric.Access {
	switch k {
	case initiator.Put, initiator.PutSignal:
		return fabric.AccessRemoteWrite
	case initiator.Get:
		return fabric.AccessRemoteRead
	}
	return fabric.AccessRemoteAtomic
}

// PutV copies the concatenated pieces of src to the concatenated pieces of dst. The two
// lists may be divided differently, but must hold the same number of bytes (ErrLength).
// Pieces of dst must not overlap (ErrOverlap). PutV checks all arguments before any byte
// is transferred; the order in which pieces become visible is not defined. The lists may
// be reused when PutV returns. It does not block, and allocates only if a list is longer
// than those of earlier calls.
// Hot path.
func (p *Peer) PutV(dst []Span, src []Buffer) Request { return p.vector(initiator.Put, src, dst) }

// GetV copies the pieces of src to those of dst: see PutV.
func (p *Peer) GetV(dst []Buffer, src []Span) Request { return p.vector(initiator.Get, dst, src) }

func (p *Peer) vector(k initiator.Kind, local []Buffer, remote []Span) Request {
	o := initiator.New(&p.one, k)
	c, mems := o.Cursor(), initiator.NeedsAll(o)
	for _, b := range local {
		s, err := b.piece(p.eng, p.link)
		if err != nil {
			return p.drop(o, err)
		}
		c.AddLocal(s)
		mems.Add(b.region.reg)
	}
	for _, s := range remote {
		if s.n < 0 {
			return p.drop(o, outside(s.at.off, s.n, s.at.key.value().Len))
		}
		addr, rkey, err := p.reach(s.at, uint64(s.n), right(k))
		if err != nil {
			return p.drop(o, err)
		}
		c.AddRemote(onesided.Piece{Addr: addr, Len: uint64(s.n), Key: rkey})
	}
	switch {
	case !c.End():
		return p.drop(o, ErrLength)
	case c.Overlap(k == initiator.Put):
		return p.drop(o, ErrOverlap)
	}
	if n := max(len(local), len(remote)); p.railed && c.Len() >= uint64(n)*initiator.PiecesFrom && n > 0 {
		divideVector(p, o, local, remote)
	}
	return p.post(o)
}

// divideVector lets the engine divide the pieces of a vector, which have been checked, over the
// rails, if the memory on each side has one key.
func divideVector(p *Peer, o *initiator.Op, local []Buffer, remote []Span) {
	for i := range local {
		if local[i].region != local[0].region {
			return
		}
	}
	for i := range remote {
		if remote[i].at.key.contents != remote[0].at.key.contents {
			return
		}
	}
	dividePieces(p, o, remote[0].at, local[0])
}

// dividePieces lets the engine divide the pieces of an operation on the memory of one key.
func dividePieces(p *Peer, o *initiator.Op, remote Remote, local Buffer) {
	keys := railKeys(p, remote)
	ownKeys(p, &keys, Buffer{region: local.region, off: local.off})
	o.DividePieces(&keys)
}

// Shape is a block of an array of up to MaxDims dimensions: runs of Run contiguous bytes,
// repeated along Dims, of which the first varies slowest. The arrays on the two sides of a
// transfer may have different strides.
//
// A column of a matrix of float64 with 1000 columns, sent to a matrix with 500:
//
//	rma.Shape{Run: 8, Dims: []rma.Dim{{Count: rows, Local: 8 * 1000, Remote: 8 * 500}}}
type Shape struct {
	Run  int
	Dims []Dim
}

// Dim is one dimension of a Shape: Count runs (or planes, or volumes) that begin Local
// bytes apart on this side and Remote bytes apart on the other. Strides must not be
// negative. On the side that is read a stride of 0 repeats the same bytes.
type Dim struct {
	Count, Local, Remote int
}

// MaxDims is the largest number of dimensions of a Shape.
const MaxDims = onesided.MaxDims

// Shape2D returns the shape of rows runs of rowBytes bytes each, which begin local bytes
// apart on this side and remote bytes apart at the peer.
func Shape2D(rows, rowBytes, local, remote int) Shape {
	return Shape{Run: rowBytes, Dims: []Dim{{Count: rows, Local: local, Remote: remote}}}
}

// PutStrided copies runs of src to runs at dst as described by shape; both begin with the
// first run. The local extent of the shape must lie inside src (ErrBounds), the remote
// extent inside the key's memory. Runs must not overlap at the destination (ErrOverlap):
// the stride of each dimension must exceed the extent of the dimensions with smaller
// strides. The shape is not expanded: a shape of millions of runs costs no memory.
// PutStrided checks all arguments before any byte is transferred; the order in which runs
// become visible is not defined. It does not allocate or block.
// Hot path.
func (p *Peer) PutStrided(dst Remote, src Buffer, shape Shape) Request {
	return p.strided(initiator.Put, src, dst, shape)
}

// GetStrided copies runs at src to runs of dst: see PutStrided.
func (p *Peer) GetStrided(dst Buffer, src Remote, shape Shape) Request {
	return p.strided(initiator.Get, dst, src, shape)
}

func (p *Peer) strided(k initiator.Kind, local Buffer, remote Remote, shape Shape) Request {
	o := initiator.New(&p.one, k)
	here, err := local.piece(p.eng, p.link)
	if err != nil {
		return p.drop(o, err)
	}
	var dims [MaxDims]onesided.Dim
	s, plan, err := shape.plan(&dims)
	switch {
	case err != nil:
	case plan.Local > here.Len:
		err = outside(0, plan.Local, here.Len)
	case s.Overlaps(k == initiator.Put):
		err = ErrOverlap
	}
	if err != nil {
		return p.drop(o, err)
	}
	there := onesided.Piece{Len: plan.Remote}
	if there.Addr, there.Key, err = p.reach(remote, plan.Remote, right(k)); err != nil {
		return p.drop(o, err)
	}
	o.Needs(local.region.reg)
	o.Cursor().SetShape(here, there, s, plan)
	if p.railed && s.Run >= initiator.PiecesFrom && plan.Total > 0 {
		dividePieces(p, o, remote, local)
	}
	return p.post(o)
}

// plan checks the shape, whose dimensions it copies to dims.
func (s Shape) plan(dims *[MaxDims]onesided.Dim) (onesided.Shape, onesided.Plan, error) {
	x := onesided.Shape{Run: s.Run, Dims: dims[:min(len(s.Dims), MaxDims)]}
	for i := range x.Dims {
		dims[i] = onesided.Dim(s.Dims[i])
	}
	plan, err := x.Check()
	if err == nil && len(s.Dims) > MaxDims {
		err = ErrShape
	}
	return x, plan, err
}

// Stats returns the counters of the operations with this peer: see Engine.Stats.
func (p *Peer) Stats() (s PeerStats) {
	p.eng.prog.Do(func() { s = p.stats() })
	s.Path = p.eng.bringup.Path(p.rank).String()
	return s
}

// stats is Stats for the owner.
func (p *Peer) stats() PeerStats {
	s := PeerStats{
		Rank: p.rank, Link: p.Link(), Err: p.down,
		Outstanding: p.budget.Outstanding(), InFlight: p.one.InFlight(), Queued: p.one.Queued() + p.msg.Queued(),
	}
	for i := range p.rails {
		if p.railed && (i == 0 || p.rails[i].has) {
			c := p.one.Rails().Counts(i)
			s.Rails = append(s.Rails, RailStats{Number: i, Up: c.Up && !p.rails[i].out, Parts: c.Parts, Bytes: c.Bytes, Again: c.Again, Lost: p.rails[i].lost, NsPerByte: c.PerByte})
		}
	}
	s.Counts.addOneSided(p.one.Counts())
	s.Counts.addMessages(p.msg.Counts())
	s.Connected = p.ep != nil && p.down == nil
	s.Messaging = p.msg.Open()
	if ch := p.msg.Channel(); ch != nil {
		s.Messages = messageStats(ch)
	}
	return s
}

// reach checks an access to n bytes of the peer's memory against the key, so that a mistake
// of this side does not cost the connection; the target checks again.
func (p *Peer) reach(at Remote, n uint64, need fabric.Access) (addr uint64, rkey uint32, err error) {
	switch k := at.key.contents; {
	case k == nil || k.Rails>>p.num&1 == 0:
		return 0, 0, ErrBadKey
	case k.Owner != 0 && k.Owner != owner(p.rank):
		return 0, 0, ErrWrongPeer
	case at.off < 0 || uint64(at.off) > k.Len || n > k.Len-uint64(at.off):
		return 0, 0, outside(at.off, n, k.Len)
	case k.Rights&need != need:
		return 0, 0, ErrRemoteAccess
	default:
		return k.Addr + uint64(at.off), k.RKeys[p.num], nil
	}
}

// post posts o.
// Hot path.
func (p *Peer) post(o *initiator.Op) Request { return postWithin(p, o, &p.budget) }

// postWithin posts o, which counts in b.
// Hot path.
func postWithin(p *Peer, o *initiator.Op, b *pending.Budget) Request {
	if p.eng.closed.Load() {
		return p.drop(o, ErrClosed)
	}
	if o.Kind().Moves() && !o.Spend(b) {
		return p.drop(o, ErrBusy)
	}
	r := newRequest(p.eng, &o.Operation)
	p.one.Post(o)
	return r
}

// message posts o.
// Hot path.
func (p *Peer) message(o *hub.Op) Request {
	e := p.eng
	if e.closed.Load() {
		return refuseMessage(e, o, ErrClosed)
	}
	if o.Kind().Sends() {
		b := &p.budget
		if o.OfLibrary() { // what the application leaves unwaited must not stop a library's protocol
			b = &p.library
		}
		if !o.Spend(b) {
			return refuseMessage(e, o, ErrBusy)
		}
	}
	r := newRequest(e, &o.Operation)
	p.msg.Post(o)
	return r
}

// drop refuses an operation that has been begun.
func (p *Peer) drop(o *initiator.Op, err error) Request {
	k := o.Kind()
	o.Drop()
	return p.refuse(k.String(), err)
}

// refuse returns the request of an operation that was refused.
func (p *Peer) refuse(op string, err error) Request {
	return newRefusal(p.eng, &PeerError{Rank: p.rank, Op: op, Err: err})
}

// refuseMessage returns the failed request of an operation that was begun and is refused.
func refuseMessage(e *Engine, o *hub.Op, err error) Request {
	return newRefusal(e, o.Refuse(err).(*PeerError)) //nolint:errorlint // made by peerError, see proto.init
}

// out returns the buffer's memory and its keys on the link to p.
func (b Buffer) out(p *Peer, mem *[]byte, lkey, rkey *uint32) (Access, error) {
	s, err := b.sge(p.eng, p.link)
	if err != nil {
		return 0, err
	}
	*mem, *lkey = b.region.reg.Bytes()[b.off:b.off+b.n], s.LKey
	var rights fabric.Access
	*rkey, rights = b.region.reg.RKey(p.num)
	return Access(rights), nil
}
