package rma

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"runtime"
	"runtime/trace"
	"sync"
	"weak"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/offheap"
	"github.com/seed33544411/rma/internal/onesided"
	"github.com/seed33544411/rma/mr"
)

// Region is memory that peers may access and operations may use. Its methods may be called
// from any goroutine.
type Region struct {
	eng *Engine
	reg *mr.Registration
}

// Buffer is a range of a Region: the local side of an operation.
type Buffer struct {
	region *Region
	off, n int
}

// Alloc returns size bytes of zeroed memory outside the Go heap, registered with the given
// rights of peers, by default all (ErrInvalid if there is no such right). A region of zero
// bytes has a key as well, which grants no access. Over shm the memory is committed at once. If
// the system has less, the error wraps ErrResources.
func (e *Engine) Alloc(size int, access ...Access) (*Region, error) {
	if size < 0 {
		return nil, fmt.Errorf("rma: alloc: %w: %d bytes", ErrInvalid, size)
	}
	granted, err := rights(access)
	if err != nil {
		return nil, fmt.Errorf("rma: alloc: %w", err)
	}
	defer trace.StartRegion(context.Background(), regionRegister).End()
	reg, err := e.memory.Alloc(size, granted, offheap.Regions)
	return e.region(reg, err)
}

// Register makes mem accessible to peers with the given rights, by default all. mem must
// not be empty (ErrBounds). Memory in the Go heap is pinned until the region is closed;
// prefer Alloc. mem may overlap other regions; one from Alloc cannot be closed before those
// that Register has made of its memory (ErrInUse).
func (e *Engine) Register(mem []byte, access ...Access) (*Region, error) {
	if len(mem) == 0 {
		return nil, fmt.Errorf("rma: register: %w: no bytes", ErrBounds)
	}
	granted, err := rights(access)
	if err != nil {
		return nil, fmt.Errorf("rma: register: %w", err)
	}
	defer trace.StartRegion(context.Background(), regionRegister).End()
	reg, err := e.memory.Register(mem, granted)
	return e.region(reg, err)
}

// Invalidate drops the engine's registrations of memory that the application has not
// registered itself. Messages, PutBytes and similar operations register such memory, and
// the engine keeps it pinned and registered for later use, up to Config.PinnedLimit bytes,
// and evicts the least recently used first. Until then the garbage collector does not free
// it, and peers that have received a key to it can access it. Call Invalidate
//
//   - always, before memory that does not belong to Go (mmap, C) is unmapped or remapped:
//     an adapter would otherwise use the old pages;
//   - if heap memory is to be collected, or withdrawn from peers, at once.
//
// Invalidate drops every registration that overlaps mem. The error wraps ErrInUse while a
// message is in flight there; nothing is dropped then. Close the region instead if the
// memory comes from Alloc or Register.
func (e *Engine) Invalidate(mem []byte) error {
	if e.closed.Load() {
		return nil // Close forgets everything
	}
	var err error
	e.prog.Do(func() { err = e.unpin(mem) })
	if err != nil {
		return fmt.Errorf("rma: %w", err)
	}
	return nil
}

// unpin drops the pins that messages and operations have left on mem. Owner's.
func (e *Engine) unpin(mem []byte) error {
	e.prog.AssertOwned()
	var errs []error
	for _, p := range e.pins {
		errs = append(errs, p.Invalidate(mem))
	}
	return errors.Join(errs...)
}

func (e *Engine) region(reg *mr.Registration, err error) (*Region, error) {
	switch {
	case errors.Is(err, mr.ErrClosed):
		return nil, ErrClosed
	case errors.Is(err, offheap.ErrSize): // more than a process can map
		return nil, fmt.Errorf("rma: %w: %w", ErrResources, err)
	case err != nil:
		return nil, fmt.Errorf("rma: %w", fabric.Shortage(err))
	}
	return &Region{eng: e, reg: reg}, nil
}

// Bytes returns the memory. It must not be used after the region or the engine is closed:
// memory of Alloc is unmapped then.
func (r *Region) Bytes() []byte { return r.reg.Bytes() }

// Belongs reports whether the region is one of this engine's and not closed. A nil region is none.
func (r *Region) Belongs(e *Engine) bool { return r != nil && r.eng == e && r.reg.Live() }

// foreign returns ErrForeign if the region is not one of the engine's, or closed.
func (r *Region) foreign(e *Engine) error {
	if r.Belongs(e) {
		return nil
	}
	return ErrForeign
}

// usable returns why operations of the engine cannot use the region: it is foreign, or the
// engine is closed.
// Hot path.
func (r *Region) usable(e *Engine) error {
	switch {
	case r == nil || r.eng != e:
		return ErrForeign
	case e.closed.Load():
		return ErrClosed // Close of the engine closes the regions
	case !r.reg.Live():
		return ErrForeign
	}
	return nil
}

// Slice returns the n bytes that begin at offset off. An operation refuses a slice that
// exceeds the region (ErrBounds).
func (r *Region) Slice(off, n int) Buffer { return Buffer{region: r, off: off, n: n} }

// Key returns the key by which peers access the region.
func (r *Region) Key() Key {
	k := r.reg.Key()
	k.Owner = owner(r.eng.Rank())
	return newKey(k)
}

// Close closes the region: later operations of peers are refused, its memory is unmapped
// or unpinned, and registrations that messages left on it (see Invalidate) are dropped.
// The error wraps ErrInUse in three cases:
//
//   - Operations of this rank are in flight in it: one-sided ones, messages that are being
//     sent, or receives that have not ended. The region is unchanged. Wait for them, or
//     cancel the receives. Close does not know of collectives of package coll. Operations
//     with a Buffer of the region that other goroutines begin meanwhile may fail (ErrForeign).
//   - The region is from Alloc, and another region, from Register, has some of its memory.
//     The region is unchanged. Close the other one first. Close of the engine closes both.
//   - A peer is in the middle of a copy to or from it, which over shm can last long if the
//     peer was stopped. The region is closed, but its memory stays pinned or mapped until
//     the peer has finished or is gone.
//
// The memory must be neither unmapped nor reused before Close has returned nil. Close may
// be called any number of times.
func (r *Region) Close() error {
	var err error
	if r.reg.Live() {
		r.eng.prog.Do(func() { err = r.withdraw() })
	}
	if err == nil {
		err = r.reg.Close()
	}
	if err != nil {
		return fmt.Errorf("rma: close region: %w", err)
	}
	return nil
}

// withdraw withdraws the memory from the operations of this rank, unless some that have started
// use it: those that start later find it closed. Owner's.
func (r *Region) withdraw() error {
	e, k := r.eng, r.reg.Key()
	e.prog.AssertOwned()
	if !r.reg.Live() {
		return nil
	}
	e.proto.inbox.TakeOver()
	if e.proto.one.Uses(k.Addr, k.Addr+k.Len) || e.proto.hub.Uses(k.Addr, k.Addr+k.Len) {
		return fmt.Errorf("%w: operations are in flight", ErrInUse)
	}
	if !e.closed.Load() {
		if err := e.unpin(r.reg.Bytes()); err != nil {
			return err
		}
	}
	return r.reg.Withdraw()
}

// bytes returns the buffer's memory.
func (b Buffer) bytes() ([]byte, error) {
	switch {
	case b.region == nil || !b.region.reg.Live():
		return nil, ErrForeign
	case uint(b.off) > uint(len(b.region.reg.Bytes())) || uint(b.n) > uint(len(b.region.reg.Bytes())-b.off):
		return nil, outside(b.off, b.n, uint64(len(b.region.reg.Bytes())))
	}
	return b.region.reg.Bytes()[b.off : b.off+b.n : b.off+b.n], nil
}

// sge returns the buffer's address and key for the link with that index.
func (b Buffer) sge(e *Engine, link int) (fabric.SGE, error) {
	r := b.region
	if err := r.usable(e); err != nil {
		return fabric.SGE{}, err
	}
	s, err := r.reg.SGE(link, b.off, b.n)
	if err != nil {
		if _, err = b.bytes(); err == nil {
			err = fmt.Errorf("%w: %d bytes", ErrTooLarge, b.n)
		}
	}
	return s, err
}

// piece returns the buffer for the link with that index. It may be longer than an SGE
// allows.
func (b Buffer) piece(e *Engine, link int) (onesided.Piece, error) {
	whole := b
	whole.n = 0
	s, err := whole.sge(e, link)
	if err == nil && (b.n < 0 || b.n > len(b.region.reg.Bytes())-b.off) {
		err = outside(b.off, b.n, b.region.reg.Key().Len)
	}
	return onesided.Piece{Addr: s.Addr, Len: uint64(max(b.n, 0)), Key: s.LKey}, err
}

// Access is the set of rights that peers have to a region. The owner of a region has all
// rights. An operation without the right fails with ErrRemoteAccess and changes nothing:
// the initiator checks the rights in the key, and the owner's link checks its own table. If
// the owner's link refuses a request, the connection is lost, as after every refused
// request.
//
// Over shm the process of the initiator checks the owner's table: rights protect against
// mistakes there, not against a malicious process of the same user.
//
// Rights apply to every rank that has the key. There are no rights of individual ranks,
// because no link but tcp could enforce them. The same memory may be registered several
// times with different rights, and each key sent only to the ranks that it is intended
// for. A peer without a key can only guess one, and loses the connection by a wrong guess.
type Access uint8

// Rights. They may be combined by | or passed one by one.
const (
	PeersRead   = Access(fabric.AccessRemoteRead)   // Get
	PeersWrite  = Access(fabric.AccessRemoteWrite)  // Put, PutSignal; with PeersAtomic also Accumulate
	PeersAtomic = Access(fabric.AccessRemoteAtomic) // atomics, SignalAdd

	PeersNothing = Access(fabric.AccessLocalWrite) // none: only the owner uses the region
)

// rights returns the rights as the links define them. Errors wrap ErrInvalid.
func rights(access []Access) (fabric.Access, error) {
	if len(access) == 0 {
		return fabric.AccessAll, nil
	}
	all := fabric.AccessLocalWrite
	for _, a := range access {
		if unknown := fabric.Access(a) &^ fabric.AccessAll; unknown != 0 {
			return 0, fmt.Errorf("%w: no rights %#x", ErrInvalid, uint8(unknown))
		}
		all |= fabric.Access(a)
	}
	return all, nil
}

func (a Access) has(right Access) bool { return a&right == right }

// linkNumber is the number of a kind of link in keys. Append only.
var linkNumber = map[string]uint8{"shm": 0, "ibv": 1, "tcp": 2, "sim": 3}

// Key identifies a region of a peer; an operation needs nothing else to access it. It is a
// value, of KeySize bytes when marshalled, and comparable: keys parsed from the same bytes
// or text are equal. Equal keys share one copy of their contents, so that passing a Key or
// a Remote costs as little as passing a pointer.
type Key struct{ contents *mr.Key }

// keysInUse holds the contents of every key in use, as long as a reference exists.
var keysInUse = struct {
	sync.Mutex
	byValue map[mr.Key]weak.Pointer[mr.Key]
}{byValue: map[mr.Key]weak.Pointer[mr.Key]{}}

// newKey returns the key with these contents.
func newKey(k mr.Key) Key {
	keysInUse.Lock()
	defer keysInUse.Unlock()
	p := keysInUse.byValue[k].Value()
	if p == nil {
		p = new(mr.Key)
		*p = k
		keysInUse.byValue[k] = weak.Make(p)
		runtime.AddCleanup(p, forgetKey, k)
	}
	return Key{p}
}

// forgetKey removes the entry of a key without references, if no newer key has the same
// contents.
func forgetKey(k mr.Key) {
	keysInUse.Lock()
	defer keysInUse.Unlock()
	if keysInUse.byValue[k].Value() == nil {
		delete(keysInUse.byValue, k)
	}
}

// value returns the contents. Those of the zero Key grant no access.
func (k Key) value() mr.Key {
	if k.contents == nil {
		return mr.Key{}
	}
	return *k.contents
}

// KeySize is the size of a marshalled Key in bytes; docs/wire.md has the layout.
const KeySize = mr.KeySize

// Len returns the size of the region in bytes, at most the largest int.
func (k Key) Len() int { return int(min(k.value().Len, math.MaxInt)) }

// At returns the location off bytes into the region. An operation refuses a location
// outside it (ErrBounds).
func (k Key) At(off int) Remote { return Remote{key: k, off: off} }

// Remote is a location in a peer's memory: a key and an offset.
type Remote struct {
	key Key
	off int
}

// Append appends the marshalled key to b.
func (k Key) Append(b []byte) []byte {
	v := k.value()
	return v.Append(b)
}

// MarshalBinary implements encoding.BinaryMarshaler; the result has KeySize bytes.
func (k Key) MarshalBinary() ([]byte, error) { return k.Append(nil), nil }

// UnmarshalBinary implements encoding.BinaryUnmarshaler; see ParseKey.
func (k *Key) UnmarshalBinary(b []byte) error {
	got, err := ParseKey(b)
	if err == nil {
		*k = got
	}
	return err
}

// MarshalText implements encoding.TextMarshaler: unpadded URL-safe base64, for
// JSON, command lines and names.
func (k Key) MarshalText() ([]byte, error) {
	return base64.RawURLEncoding.AppendEncode(nil, k.Append(nil)), nil
}

// UnmarshalText implements encoding.TextUnmarshaler. Errors wrap ErrBadKey.
func (k *Key) UnmarshalText(text []byte) error {
	b, err := base64.RawURLEncoding.AppendDecode(nil, text)
	if err != nil {
		return fmt.Errorf("rma: %w: %w", ErrBadKey, err)
	}
	return k.UnmarshalBinary(b)
}

// String returns the text form of MarshalText.
func (k Key) String() string { return base64.RawURLEncoding.EncodeToString(k.Append(nil)) }

// ParseKey parses a key that Append made. It does not verify the key: only the target
// decides whether it is valid. Errors wrap ErrBadKey.
func ParseKey(b []byte) (Key, error) {
	k, rest, err := mr.ParseKey(b)
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("%w: %d bytes, want %d", ErrBadKey, len(b), KeySize)
	}
	if err != nil {
		return Key{}, fmt.Errorf("rma: %w", err)
	}
	return newKey(k), nil
}

// part returns the data that a rank brings to a collective call for keys: its key, or, shorter,
// why it has none.
func part(mem *Region, failed error) []byte {
	if failed != nil {
		return fmt.Appendf(nil, "%.*s", KeySize-1, failed.Error())
	}
	k := mem.Key()
	return k.Append(nil)
}

// keysOf parses what the ranks have brought to the collective call op, each the data of part.
func keysOf(op string, all [][]byte) ([]Key, error) {
	keys := make([]Key, len(all))
	for r, b := range all {
		if len(b) < KeySize {
			return nil, &PeerError{Rank: r, Op: op, Err: fmt.Errorf("that rank has no memory for it: %q", b)}
		}
		var err error
		if keys[r], err = keyOf(r, b); err != nil {
			return nil, err
		}
	}
	return keys, nil
}

// keyOf parses the key that a rank sent.
func keyOf(rank int, b []byte) (Key, error) {
	k, err := ParseKey(b)
	if err != nil {
		return Key{}, &PeerError{Rank: rank, Op: "exchange keys", Err: err}
	}
	return k.of(rank), nil
}

// of returns the key as one of the rank's memory, whatever it says itself.
func (k Key) of(rank int) Key {
	v := k.value()
	v.Owner = owner(rank)
	return newKey(v)
}

// owner returns the owner that keys of the rank's memory name. It is not 0, which names none: jobs have
// at most wireup.MaxRanks ranks.
func owner(rank int) uint16 { return uint16(rank + 1) }
