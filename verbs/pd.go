package verbs

import "fmt"

// PD is a protection domain: its queue pairs can access only its memory. The constructors
// of its objects are in their own files.
type PD struct {
	ctx *Context
	h   uintptr
}

// AllocPD creates a protection domain.
func (c *Context) AllocPD() (*PD, error) {
	const op = "allocate protection domain"
	h, err := c.use(op)
	if err != nil {
		return nil, err
	}
	pd, no := rawAllocPD(h)
	if no != 0 {
		return nil, memFail(op, no, 0, "")
	}
	return &PD{ctx: c, h: pd}, nil
}

// Context returns the device of the domain.
func (p *PD) Context() *Context { return p.ctx }

// Close releases the domain.
func (p *PD) Close() error {
	if p.h == 0 {
		return nil
	}
	if no := rawDeallocPD(p.h); no != 0 {
		return closeFail("release protection domain", no)
	}
	p.h = 0
	return nil
}

func (p *PD) use(op string) (uintptr, error) {
	if p.h == 0 {
		return 0, fmt.Errorf("%s: protection domain: %w", op, ErrClosed)
	}
	return p.h, nil
}

// AH is an address handle: the path to a destination of datagrams.
type AH struct{ h uintptr }

// CreateAH creates an address handle.
func (p *PD) CreateAH(a AHAttr) (*AH, error) {
	const op = "create address handle"
	h, err := p.use(op)
	if err != nil {
		return nil, err
	}
	ah, no := rawCreateAH(h, &a)
	if no != 0 {
		return nil, fail(op, no, "is there a route to the destination from this GID?")
	}
	return &AH{h: ah}, nil
}

// Close releases the handle, after the requests that use it have completed.
func (a *AH) Close() error {
	if a.h == 0 {
		return nil
	}
	if no := rawDestroyAH(a.h); no != 0 {
		return closeFail("destroy address handle", no)
	}
	a.h = 0
	return nil
}
