package message

import "github.com/seed33544411/rma/fabric"

// Pin is memory of an application that Pins hold registered for an operation that
// is no message. The zero value is none.
type Pin struct{ pin }

// LKey is the local key of the memory.
func (x *Pin) LKey() uint32 { return x.lkey }

// Take pins and registers mem, which must not be empty, until Release. A hit does
// not allocate.
func (p *Pins) Take(mem []byte, access fabric.Access) (Pin, error) {
	x, err := p.take(mem, access)
	return Pin{x}, err
}

// Release ends what Take began. Idempotent; of the zero value nothing.
func (p *Pins) Release(x *Pin) { p.release(&x.pin) }
