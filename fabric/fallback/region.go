package fallback

import (
	"errors"

	"github.com/seed33544411/rma/fabric"
)

// region is a region of both links. The methods that it does not have are the first one's.
type region struct {
	fabric.Region
	second fabric.Region
}

// Register implements fabric.Link.
func (l *Link) Register(mem []byte, access fabric.Access) (fabric.Region, error) {
	r, err := l.Link.Register(mem, access)
	return l.share(r, err, func() (fabric.Region, error) { return l.second.Register(mem, access) })
}

// Alloc implements fabric.Link.
func (l *Link) Alloc(size int, access fabric.Access) (fabric.Region, error) {
	r, err := l.Link.Alloc(size, access)
	return l.share(r, err, func() (fabric.Region, error) { return l.second.Alloc(size, access) })
}

// share registers r with the second link as well, or, if the first link has failed for good, makes a region of
// the second by alone.
func (l *Link) share(r fabric.Region, err error, alone func() (fabric.Region, error)) (fabric.Region, error) {
	switch {
	case l.second == nil || err != nil && !errors.Is(l.Usable(), fabric.ErrDeviceGone):
		return r, err
	case err != nil:
		return alone()
	}
	second, err := l.namer.RegisterAs(r.Bytes(), r.Access(), r.LKey(), r.Key().RKey)
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return &region{r, second}, nil
}

// Close implements fabric.Region.
func (r *region) Close() error {
	if err := r.second.Close(); err != nil {
		return err
	}
	return r.Region.Close()
}
