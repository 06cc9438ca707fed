package message

import (
	"fmt"

	"github.com/seed33544411/rma/eager"
	"github.com/seed33544411/rma/rdv"
)

// setupVersion changes with anything that two sides must agree on.
const setupVersion = 1

// Setup is what the peer's Connect needs, to be carried there by other means.
func (c *Channel) Setup() []byte {
	ring, long := c.ring.Setup(), c.long.Setup()
	return long.Append(ring.Append([]byte{setupVersion}))
}

// parseSetup reads what Setup of the peer made. It is not trusted; errors wrap
// ErrSetup.
func parseSetup(b []byte) (ring eager.Setup, long rdv.Setup, err error) {
	if len(b) == 0 || b[0] != setupVersion {
		return ring, long, fmt.Errorf("%w: version %v, want %d: both sides must run the same release", ErrSetup, b[:min(1, len(b))], setupVersion)
	}
	ring, b, err = eager.ParseSetup(b[1:])
	if err == nil {
		long, b, err = rdv.ParseSetup(b)
	}
	switch {
	case err != nil:
		err = fmt.Errorf("%w: %w", ErrSetup, err)
	case len(b) > 0:
		err = fmt.Errorf("%w: %d bytes too many", ErrSetup, len(b))
	}
	return ring, long, err
}
