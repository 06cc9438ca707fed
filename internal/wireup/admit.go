package wireup

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/bits"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
)

// MinToken is the least number of bytes of a secret for a job over a network, where an
// attacker can collect proofs of it and guess offline.
const MinToken = 16

// Errors of processes that are not admitted.
var (
	// ErrNoToken means that anybody could join the job: its server is reachable for other
	// users, and it has no secret, or a short one.
	ErrNoToken = fmt.Errorf("%w: the job needs a secret", ErrEnvironment)

	// ErrUser means that a process of another user is at the other end of a Unix socket, in
	// a job without a secret.
	ErrUser = fmt.Errorf("%w: another user's process is at the other end of the socket", ErrNoToken)
)

// admission decides which processes may join a job. There is one rule for all ways to start
// a job. Over a network, including loopback, which every user of a host can reach, it
// requires a secret of at least MinToken bytes, or TLS with certificates on both sides; at
// a Unix socket such a secret, or the same user; unless the job is declared insecure.
type admission struct {
	token    []byte
	tls      *tls.Config
	insecure bool
	hint     string // how to distribute a secret to all ranks
}

// check rejects a network on which other users cannot be distinguished from the job's.
func (a *admission) check(network, address string) error {
	if network == "unix" || a.insecure || a.tls != nil || len(a.token) >= MinToken {
		return nil
	}
	has := "none"
	if n := len(a.token); n > 0 {
		has = fmt.Sprint("one of ", n)
	}
	hint := a.hint
	hint = cmp.Or(hint, "set "+EnvToken+" on all ranks to one output of `openssl rand -hex 32`")
	return fmt.Errorf("%w of at least %d bytes and has %s, but other users can reach %s: %s; or %s=1 on a trusted network",
		ErrNoToken, MinToken, has, address, hint, EnvInsecure)
}

// checkPeer rejects a process of another user if nothing else distinguishes it from the
// job's.
func (a *admission) checkPeer(conn net.Conn) error {
	c, ok := conn.(*net.UnixConn)
	if !ok || a.insecure || len(a.token) >= MinToken {
		return nil
	}
	return sameUser(c)
}

// InsecureFrom parses RMA_INSECURE.
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

// refused counts connections that were not admitted, by reason.
type refused map[string]int

// refusals are the reasons; the first that matches is used.
var refusals = []struct {
	err  error
	text string
}{
	{ErrToken, "wrong token"}, {ErrVersion, "another version"}, {ErrSize, "another job size"}, {ErrRank, "rank outside the job"},
	{ErrDuplicateRank, "rank joined already"}, {ErrUser, "another user's process"}, {ErrTLS, "bad certificate or no TLS"},
	{os.ErrDeadlineExceeded, "silent"}, {io.EOF, "silent"}, {io.ErrUnexpectedEOF, "hung up"}, {net.ErrClosed, "too many at once"},
	{ErrServerGone, "job ended"}, {ErrProtocol, "not a rank"},
}

// note counts a connection, and reports whether to log it: the first, the second, the
// fourth and so on for each reason.
func (r refused) note(err error) (text string, n int, tell bool) {
	text = "broken connection"
	for _, x := range refusals {
		if errors.Is(err, x.err) {
			text = x.text
			break
		}
	}
	r[text]++
	n = r[text]
	return text, n, bits.OnesCount(uint(n)) == 1
}

// String returns a sentence for ranks that wait for others to join; empty if no connection
// was refused.
func (r refused) String() string {
	if len(r) == 0 {
		return ""
	}
	total, parts := 0, []string(nil)
	texts := slices.Sorted(maps.Keys(r))
	slices.SortStableFunc(texts, func(a, b string) int { return r[b] - r[a] })
	for _, text := range texts {
		total += r[text]
		parts = append(parts, fmt.Sprintf("%s (%d)", text, r[text]))
	}
	were := "connections were"
	if total == 1 {
		were = "connection was"
	}
	return fmt.Sprintf("%d %s refused: %s", total, were, strings.Join(parts, ", "))
}
