package jobenv

import (
	"fmt"
	"strconv"

	"github.com/seed33544411/rma/internal/wireup"
)

// minToken is the least number of bytes of a secret that goes over a network,
// where answers to the challenge can be collected and guessed at in peace.
const minToken = 16

// checkSecret refuses a job of several hosts that anybody could join.
func (p *place) checkSecret(e env) error {
	if s := e(EnvInsecure); s != "" {
		on, err := strconv.ParseBool(s)
		if err != nil {
			return fmt.Errorf("%w: %s=%q: want 0 or 1", wireup.ErrEnvironment, EnvInsecure, s)
		}
		if on {
			return nil
		}
	}
	switch {
	case len(p.Token) >= minToken || p.TLS != nil:
		return nil
	case len(p.Token) > 0:
		return fmt.Errorf("%w of at least %d bytes (hexadecimal): %s has %d", ErrNoToken, minToken, wireup.EnvToken, len(p.Token))
	}
	return fmt.Errorf("%w: %s; or %s=1 on a network where everybody is trusted", ErrNoToken, p.hint, EnvInsecure)
}
