package wireup

import (
	"crypto/tls"
	"fmt"
	"net"
	"strconv"
)

// MinToken is the least number of bytes of a secret that admits to a job over a
// network, where proofs of it can be collected and guessed at in peace.
const MinToken = 16

// Errors of who is not admitted.
var (
	// ErrNoToken is a job that anybody could join: it meets where others than its
	// user reach it, and has no secret, or a short one.
	ErrNoToken = fmt.Errorf("%w: the job needs a secret", ErrEnvironment)

	// ErrUser is a process of another user at the other end of a Unix socket, in a
	// job without a secret.
	ErrUser = fmt.Errorf("%w: another user's process is at the other end of the socket", ErrNoToken)
)

// admission is by what a job knows its own processes. There is one rule for all
// ways to start one: over a network, the loopback included, which every user of a
// host reaches, it takes a secret of at least MinToken bytes, or TLS with
// certificates on both sides; at a Unix socket such a secret, or the same user;
// unless everybody is trusted.
type admission struct {
	token    []byte
	tls      *tls.Config
	insecure bool
	hint     string // how a secret reaches all ranks
}

// check refuses a network whose users could not be told from the job's.
func (a *admission) check(network, address string) error {
	if network == "unix" || a.insecure || a.tls != nil || len(a.token) >= MinToken {
		return nil
	}
	has := "none"
	if n := len(a.token); n > 0 {
		has = fmt.Sprint("one of ", n)
	}
	hint := a.hint
	if hint == "" {
		hint = "set " + EnvToken + " on all ranks to one output of `openssl rand -hex 32`"
	}
	return fmt.Errorf("%w of at least %d bytes and has %s, but other users can reach %s: %s; or %s=1 on a trusted network",
		ErrNoToken, MinToken, has, address, hint, EnvInsecure)
}

// checkPeer refuses a process of another user where nothing else tells it from the
// job's.
func (a *admission) checkPeer(conn net.Conn) error {
	c, ok := conn.(*net.UnixConn)
	if !ok || a.insecure || len(a.token) >= MinToken {
		return nil
	}
	return sameUser(c)
}

// InsecureFrom reads RMA_INSECURE.
func InsecureFrom(get func(string) string) (bool, error) {
	s := get(EnvInsecure)
	if s == "" {
		return false, nil
	}
	on, err := strconv.ParseBool(s)
	if err != nil {
		return false, fmt.Errorf("wireup: %w: %s=%q: want 0 or 1", ErrEnvironment, EnvInsecure, s)
	}
	return on, nil
}
