package wireup

import (
	"context"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"time"
)

// Names of the environment variables that describe a job. rmarun sets them.
const (
	EnvRank      = "RMA_RANK"       // this process's rank, 0 … size-1
	EnvSize      = "RMA_SIZE"       // ranks in the job
	EnvRoot      = "RMA_ROOT"       // wire-up server: unix:/path, tcp:host:port or host:port
	EnvToken     = "RMA_TOKEN"      // secret of the job, hexadecimal
	EnvTokenFile = "RMA_TOKEN_FILE" // file that contains it
	EnvTLSCert   = "RMA_TLS_CERT"   // see LoadTLS: this process's certificate,
	EnvTLSKey    = "RMA_TLS_KEY"    // its key,
	EnvTLSCA     = "RMA_TLS_CA"     // the authority that must have signed the others'
	EnvInsecure  = "RMA_INSECURE"   // 1: no secret needed, see ErrNoToken
	EnvJob       = "RMA_JOB"        // name of the job, for messages and names of shared objects
	EnvLocalRank = "RMA_LOCAL_RANK" // rank among the job's processes on this host
	EnvTimeout   = "RMA_TIMEOUT"    // Config.Timeout, as in "30s"
)

// DefaultTimeout bounds waits whose context has no deadline. It is long compared with the
// start of a large job on a loaded machine and short compared with the limits of a batch
// queue.
const DefaultTimeout = 2 * time.Minute

// Config describes the job to join. The zero value is a job of its own: rank 0 of 1.
type Config struct {
	Rank int
	Size int // 0 means 1

	// Root is the wire-up server: "unix:/path", "tcp:host:port" or "host:port", or several
	// of these, separated by commas, which are tried in turn. It may be empty for a job of
	// one.
	Root string

	// Listener makes this rank run the server of the job on it, if there is no launcher.
	// Join owns it. Close then waits for the other ranks to leave, up to Timeout. Root is
	// then used in messages only.
	Listener net.Listener

	// Prepare, if set, completes Root, Listener and Token before Join joins, if that
	// requires communication with a launcher or opening sockets.
	Prepare func(ctx context.Context, c *Config) error

	// TLS protects the connection to the server, unless that is a Unix socket. Both sides
	// must have it. See LoadTLS.
	TLS *tls.Config

	// Log receives refusals and lost ranks of this rank's server. May be nil.
	Log *slog.Logger

	// Token is the job's secret: at least MinToken bytes if there is neither TLS nor a Unix
	// socket between processes of one user. See ErrNoToken.
	Token []byte

	// Insecure joins without these, on a trusted network.
	Insecure bool

	// TokenHint describes how to distribute a secret to all ranks, for the error of a job
	// that lacks one. May be empty.
	TokenHint string

	// Job names the job. Empty is fine.
	Job string

	// LocalRank is the rank among the job's processes on this host.
	LocalRank int

	// Timeout bounds every wait whose context has no deadline, including Join. Zero means
	// DefaultTimeout; negative waits for ever.
	Timeout time.Duration
}

// From reads the description of the job from the environment, by get (os.Getenv). Without
// one it returns a job of its own, rank 0 of 1. An incomplete description is an error that
// wraps ErrEnvironment.
func From(get func(string) string) (Config, error) {
	c := Config{Size: 1, Job: get(EnvJob)}
	bad := func(name, why string) (Config, error) {
		return Config{}, fmt.Errorf("wireup: %w: %s=%q: %s", ErrEnvironment, name, get(name), why)
	}
	var err error
	if c.Timeout, err = TimeoutFrom(get); err != nil {
		return Config{}, err
	}
	if get(EnvRank) == "" && get(EnvSize) == "" && get(EnvRoot) == "" {
		return c, nil
	}
	for _, name := range []string{EnvSize, EnvRank} {
		for _, set := range []string{EnvRank, EnvSize, EnvRoot} {
			if get(name) == "" && get(set) != "" {
				return bad(set, name+" is not set: start the program by a launcher, or unset "+set+" for a job of one process")
			}
		}
	}
	if c.Size, err = strconv.Atoi(get(EnvSize)); err != nil || c.Size < 1 || c.Size > MaxRanks {
		return bad(EnvSize, fmt.Sprintf("want 1 … %d", MaxRanks))
	}
	if c.Rank, err = strconv.Atoi(get(EnvRank)); err != nil || c.Rank < 0 || c.Rank >= c.Size {
		return bad(EnvRank, fmt.Sprintf("want 0 … %d", c.Size-1))
	}
	if s := get(EnvLocalRank); s != "" {
		if c.LocalRank, err = strconv.Atoi(s); err != nil || c.LocalRank < 0 {
			return bad(EnvLocalRank, "want a number from 0")
		}
	}
	if c.Token, err = TokenFrom(get); err != nil {
		return Config{}, err
	}
	if c.TLS, err = TLSFrom(get); err != nil {
		return Config{}, err
	}
	if c.Insecure, err = InsecureFrom(get); err != nil {
		return Config{}, err
	}
	if c.Root = get(EnvRoot); c.Root == "" && c.Size > 1 {
		return bad(EnvRoot, "a job of several ranks needs the wire-up server's address")
	}
	if c.Root != "" {
		if _, err := parseRoots(c.Root); err != nil {
			return Config{}, err
		}
	}
	return c, nil
}

// TimeoutFrom parses RMA_TIMEOUT; 0 if it is not set.
func TimeoutFrom(get func(string) string) (time.Duration, error) {
	s := get(EnvTimeout)
	if s == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d == 0 {
		return 0, fmt.Errorf("wireup: %w: %s=%q: want a duration such as 30s", ErrEnvironment, EnvTimeout, s)
	}
	return d, nil
}

// Environ is the inverse of From: the variables that describe c.
func (c Config) Environ() []string {
	env := []string{
		EnvRank + "=" + strconv.Itoa(c.Rank),
		EnvSize + "=" + strconv.Itoa(max(c.Size, 1)),
		EnvRoot + "=" + c.Root,
		EnvToken + "=" + hex.EncodeToString(c.Token),
		EnvJob + "=" + c.Job,
		EnvLocalRank + "=" + strconv.Itoa(c.LocalRank),
	}
	if c.Timeout != 0 {
		env = append(env, EnvTimeout+"="+c.Timeout.String())
	}
	return env
}

// ParseRoot splits a server address into the arguments of net.Dial and net.Listen.
func ParseRoot(root string) (network, address string, err error) {
	switch {
	case strings.HasPrefix(root, "unix:") && len(root) > len("unix:"):
		return "unix", root[len("unix:"):], nil
	case strings.HasPrefix(root, "tcp:") && len(root) > len("tcp:"):
		return "tcp", root[len("tcp:"):], nil
	case strings.Contains(root, ":") && !strings.HasPrefix(root, "unix:") && !strings.HasPrefix(root, "tcp:"):
		return "tcp", root, nil
	}
	return "", "", fmt.Errorf("wireup: %w: server address %q: want unix:/path or host:port", ErrEnvironment, root)
}

// address is one possible address of the server.
type address struct{ network, address string }

func parseRoots(root string) (all []address, err error) {
	for r := range strings.SplitSeq(root, ",") {
		network, a, err := ParseRoot(r)
		if err != nil {
			return nil, err
		}
		all = append(all, address{network, a})
	}
	return all, nil
}
