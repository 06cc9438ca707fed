package mr

import (
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/offheap"
)

// Rail is a link and its number in keys. The peers agree on the numbers of links, above
// this package.
type Rail struct {
	Link   fabric.Link
	Number uint8 // below MaxRails
}

// Domain is the set of links that memory is registered with, and the table of
// registrations. Any goroutine may call its methods. The links belong to the caller: close
// the domain before them.
type Domain struct {
	rails []Rail
	from  int // index of the rail whose Alloc peers map, -1 if none
	table table
}

// NewDomain creates a domain over rails, whose order is that of the indices passed to
// Registration.SGE and LKey.
func NewDomain(rails ...Rail) (*Domain, error) {
	d := &Domain{rails: append([]Rail(nil), rails...), from: -1}
	var seen uint8
	for i, r := range rails {
		if r.Number >= MaxRails || seen>>r.Number&1 != 0 {
			return nil, fmt.Errorf("mr: rail number %d is taken or not below %d", r.Number, MaxRails)
		}
		seen |= 1 << r.Number
		if d.from < 0 && r.Link.Caps().MapsAlloc {
			d.from = i
		}
	}
	if len(rails) == 0 {
		return nil, errors.New("mr: a domain needs a link")
	}
	return d, nil
}

// Alloc returns size bytes of zeroed, page-aligned memory outside the Go heap, registered
// with all rails. If a link's peers map memory that the link allocates, the link allocates
// it; otherwise it comes from huge pages as far as the system has them, counted under p.
// Closing the registration frees it. Memory of 0 bytes has an address and keys like any
// other.
func (d *Domain) Alloc(size int, access fabric.Access, p offheap.Purpose) (*Registration, error) {
	r := &Registration{dom: d, owner: -1, purpose: p, none: size == 0}
	var err error
	if r.none {
		size = 1
	}
	switch {
	case size < 0:
		return nil, fmt.Errorf("mr: alloc of %d bytes: %w", size, ErrSize)
	case d.from >= 0:
		var reg fabric.Region
		if reg, err = d.rails[d.from].Link.Alloc(size, access); err == nil {
			r.owner, r.mem, r.regs[d.from] = d.from, reg.Bytes(), reg
		}
	case r.none:
		r.mem, err = offheap.Alloc(size, p)
		r.owned = true
	default:
		r.mem, err = offheap.AllocHuge(size, p)
		r.owned = true
	}
	if err != nil {
		return nil, fmt.Errorf("mr: alloc of %d bytes: %w", size, err)
	}
	return d.enter(r, access)
}

// Register makes exactly mem, memory of the caller, accessible through all rails. An object
// of the Go heap is pinned until the registration is closed.
func (d *Domain) Register(mem []byte, access fabric.Access) (*Registration, error) {
	if len(mem) == 0 {
		return nil, fmt.Errorf("mr: register no bytes: %w", ErrSize)
	}
	r := &Registration{dom: d, owner: -1, mem: mem[:len(mem):len(mem)], pin: new(runtime.Pinner)}
	r.pin.Pin(&mem[0]) // no effect for memory outside the Go heap
	return d.enter(r, access)
}

// enter registers r.mem with the rails that do not have it yet, and enters it in the table.
func (d *Domain) enter(r *Registration, access fabric.Access) (*Registration, error) {
	access &= fabric.AccessAll
	r.key = Key{Addr: fabric.Addr(r.mem), Len: uint64(len(r.Bytes())), Rights: access}
	for i, rail := range d.rails {
		if r.regs[i] == nil {
			reg, err := rail.Link.Register(r.mem, access)
			if err != nil {
				err = fmt.Errorf("mr: register %d bytes with %s: %w", len(r.mem), rail.Link.Name(), err)
				return nil, errors.Join(err, r.release())
			}
			r.regs[i] = reg
		}
		r.lkeys[i] = r.regs[i].LKey()
		r.key.RKeys[rail.Number] = r.regs[i].Key().RKey
		r.key.Rails |= 1 << rail.Number
	}
	if err := d.table.add(r, func(ref Ref) { r.key.Ref = ref }); err != nil {
		return nil, errors.Join(err, r.release())
	}
	return r, nil
}

// Resolve checks a peer's descriptor of memory of this side: that ref is live, that [addr,
// addr+n) is inside it, and that it grants need. It returns the memory and its
// registration, held: call Release when the descriptor has been executed. Errors are
// *KeyError, and nothing is held then. Does not allocate on success; safe beside
// registration and Close.
func (d *Domain) Resolve(ref Ref, addr, n uint64, need fabric.Access) ([]byte, *Registration, error) {
	r := d.table.find(ref)
	if r == nil || !r.Hold() {
		return nil, nil, &KeyError{Ref: ref, Addr: addr, Len: n, Need: need, Err: ErrStale}
	}
	mem, err := r.Part(addr, n, need)
	if err != nil {
		_ = r.Release() // frees memory only if it is being closed; Close reports failures
		return nil, nil, err
	}
	return mem, r, nil
}

// Live returns the number of registrations that are not released yet.
func (d *Domain) Live() int {
	d.table.mu.Lock()
	defer d.table.mu.Unlock()
	return len(d.table.live)
}

// Close ends the domain: nothing more is registered, and open registrations are closed.
// Registrations in use stay until they are released, and the error wraps ErrInUse: call
// Close again after that, before the links are closed.
func (d *Domain) Close() error {
	d.table.mu.Lock()
	d.table.down = true
	all := slices.Collect(maps.Keys(d.table.live))
	d.table.mu.Unlock()
	var errs []error
	for _, own := range []bool{false, true} { // memory goes after the registrations of its parts
		for _, r := range all {
			if r.owns() == own {
				errs = append(errs, r.Close())
			}
		}
	}
	return errors.Join(errs...)
}
