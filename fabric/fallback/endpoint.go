package fallback

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/seed33544411/rma/fabric"
)

// An address on the wire:
//
//	0  magic "RMAf"
//	4  version, 1
//	5  1 if atomics over the second link exclude those over the first at this side, else 0
//	6  length of the next field, 0: this side cannot use the first link (2, little-endian)
//	8  CRC-32C of everything but this field (4)
//	12 address of the endpoint of the first link
//	   address of the endpoint of the second link, empty: this side has none
//
// The first link is used if both sides can, else the second. The checksum detects accidental damage, also in
// the address that is not used.
const (
	addrMagic   = "RMAf"
	addrVersion = 1
	addrSum     = 8
	addrHeader  = 12
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sum returns the checksum of an address.
func sum(b []byte) uint32 {
	return crc32.Update(crc32.Checksum(b[:addrSum], castagnoli), castagnoli, b[addrHeader:])
}

type address struct {
	atomics       bool
	first, second []byte
}

func (a *address) append(b []byte) []byte {
	start := len(b)
	b = append(append(b, addrMagic...), addrVersion, 0)
	if a.atomics {
		b[len(b)-1] = 1
	}
	b = binary.LittleEndian.AppendUint16(b, uint16(len(a.first)))
	b = append(append(append(b, 0, 0, 0, 0), a.first...), a.second...)
	binary.LittleEndian.PutUint32(b[start+addrSum:], sum(b[start:]))
	return b
}

// parseAddress parses a peer's address, which is untrusted, except for its two parts. Errors wrap ErrBadAddress.
func parseAddress(b []byte) (a address, err error) {
	if len(b) < addrHeader || string(b[:4]) != addrMagic || b[4] != addrVersion || b[5] > 1 || len(b) > fabric.MaxAddress {
		return a, fmt.Errorf("%w: not the address of an endpoint over one of two links (%d bytes): RMA_FABRIC must be the same on all ranks", fabric.ErrBadAddress, len(b))
	}
	n := int(binary.LittleEndian.Uint16(b[6:]))
	if n > len(b)-addrHeader || sum(b) != binary.LittleEndian.Uint32(b[addrSum:]) {
		return a, fmt.Errorf("%w: damaged", fabric.ErrBadAddress)
	}
	b, atomics := b[addrHeader:], b[5] == 1
	return address{atomics, b[:n], b[n:]}, nil
}

// endpoint is an endpoint of each link until it is connected.
type endpoint struct {
	l             *Link
	first, second fabric.Endpoint // nil: not to be used
	why           error           // why first is not
	chosen        fabric.Endpoint
}

var errSecond = errors.New("the connection before could not be made over it")

// NewEndpoint implements fabric.Link. Callers replace the result, see fabric.Forked.
func (l *Link) NewEndpoint(o fabric.EndpointOptions) (fabric.Endpoint, error) {
	e := &endpoint{l: l}
	var err error
	if l.second != nil {
		if e.second, err = l.second.NewEndpoint(o); err != nil {
			e.second = nil
		} else if e.why = l.Usable(); o.Second {
			e.why = errSecond
		}
	}
	if e.why != nil {
		return e, nil //nolint:nilerr // Connect reports why
	}
	if e.first, e.why = l.Link.NewEndpoint(o); e.why != nil {
		if e.first = nil; e.second == nil {
			return nil, errors.Join(e.why, err)
		}
	}
	return e, nil
}

// Address implements fabric.Endpoint.
func (e *endpoint) Address() []byte {
	a := address{atomics: e.l.caps.AtomicCPU || errors.Is(e.l.Usable(), fabric.ErrDeviceGone)}
	if e.first != nil {
		a.first = e.first.Address()
	}
	if e.second != nil {
		a.second = e.second.Address()
	}
	return a.append(nil)
}

// Connect implements fabric.Endpoint. The error wraps fabric.ErrOtherWay if the first link was tried, and both
// sides have a second.
func (e *endpoint) Connect(ctx context.Context, peer []byte) error {
	a, err := parseAddress(peer)
	if err != nil {
		return err
	}
	other := e.second != nil && len(a.second) > 0
	switch {
	case e.first != nil && len(a.first) > 0:
		if err = e.first.Connect(ctx, a.first); err != nil && other && ctx.Err() == nil {
			return fmt.Errorf("%w: %w", fabric.ErrOtherWay, err)
		}
		e.chosen = e.first
		return err
	case !other && e.why != nil:
		return fmt.Errorf("%w: %w", fabric.ErrNotConnected, e.why)
	case !other:
		return fmt.Errorf("%w: the peer cannot use %s at present", fabric.ErrNotConnected, e.l.Name())
	}
	e.l.used.Store(true)
	if err = e.second.Connect(ctx, a.second); err == nil {
		e.l.note(e.second, a.atomics)
		e.chosen = e.second
	}
	return err
}

// Settle implements fabric.Forked.
func (e *endpoint) Settle() (ep, unused fabric.Endpoint) {
	ep, unused = e.first, e.second
	if e.chosen == unused {
		ep, unused = unused, ep
	}
	return ep, unused
}

// Post implements fabric.Endpoint.
func (e *endpoint) Post([]fabric.WR) (int, error) { return 0, fabric.ErrNotConnected }

// Err implements fabric.Endpoint.
func (e *endpoint) Err() error {
	for _, x := range []fabric.Endpoint{e.first, e.second} {
		if x != nil && x.Err() != nil {
			return x.Err()
		}
	}
	return nil
}

// Close implements fabric.Endpoint.
func (e *endpoint) Close() error {
	var errs []error
	for _, x := range []fabric.Endpoint{e.first, e.second} {
		if x != nil {
			errs = append(errs, x.Close())
		}
	}
	return errors.Join(errs...)
}

var _ fabric.Forked = (*endpoint)(nil)
