package verbs

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
