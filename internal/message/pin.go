package message

import (
	"fmt"
	"runtime"

	"github.com/seed33544411/rma/fabric"
)

// pin is memory registered for one transfer: what the application brought
// without registering it.
type pin struct {
	region fabric.Region
	pinner runtime.Pinner
}

func newPin(link fabric.Link, mem []byte, access fabric.Access) (*pin, error) {
	p := &pin{}
	p.pinner.Pin(&mem[0])
	var err error
	if p.region, err = link.Register(mem, access); err != nil {
		p.pinner.Unpin()
		return nil, fmt.Errorf("register %d bytes for one transfer: %w", len(mem), err)
	}
	return p, nil
}

// pinOut registers the memory of o, if that was not done.
func (c *Channel) pinOut(o *Out) (err error) {
	if o.pin == nil {
		o.pin, err = newPin(c.link, o.Data, fabric.AccessRemoteRead)
	}
	return err
}

func (p *pin) release() {
	_ = p.region.Close() // nothing uses it any more
	p.pinner.Unpin()
}
