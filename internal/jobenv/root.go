package jobenv

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/seed33544411/rma/internal/wireup"
)

// place is a job as its launcher describes it, from which complete makes a Found.
type place struct {
	Found
	id      string // name of the job: the same on all its ranks, different for other jobs
	oneHost bool
	root    string // where ranks of several hosts meet, if the launcher provides it
	noRoot  string // why root is empty
	secret  []byte // known only to the job's processes, if the launcher provides one
	prepare func(ctx context.Context, c *wireup.Config) error
}

// Derived ports lie above Linux's ephemeral ports (up to 60999).
const (
	firstPort = 61000
	ports     = 4000
)

func digest(id string) [sha256.Size]byte { return sha256.Sum256([]byte("rma job " + id)) }

// port returns the port derived from the name of the job.
func port(id string) string { return strconv.Itoa(int(portNumber(id))) }

func portNumber(id string) uint16 {
	d := digest(id)
	return firstPort + uint16(binary.LittleEndian.Uint32(d[:])%ports)
}

// complete determines where the ranks meet, and with which secret.
func (p *place) complete(e env) error {
	var err error
	if p.Timeout, err = wireup.TimeoutFrom(e); err != nil {
		return err
	}
	if p.Job = p.id; p.Size == 1 {
		return nil
	}
	if p.TLS, err = wireup.TLSFrom(e); err != nil {
		return err
	}
	if p.Insecure, err = wireup.InsecureFrom(e); err != nil {
		return err
	}
	if p.Token, err = wireup.TokenFrom(e); err != nil {
		return err
	}
	if p.Token == nil {
		p.Token = p.secret
	}
	explicit := e(wireup.EnvRoot)
	switch {
	case explicit != "":
		p.Root = explicit
	case p.prepare != nil:
		p.Prepare = p.prepare
		return nil
	case p.oneHost:
		p.Prepare = func(_ context.Context, c *wireup.Config) error { return p.atSocket(e, c) }
		return nil
	case p.root != "":
		p.Root = p.root
	default:
		return fmt.Errorf("%w: %s, so %s=host:port has to be set: a host of rank 0 that all reach", ErrNoRoot, p.noRoot, wireup.EnvRoot)
	}
	if _, _, err := wireup.ParseRoot(strings.SplitN(p.Root, ",", 2)[0]); err != nil {
		return err
	}
	if p.Rank == 0 && e(EnvServe) != "0" {
		p.Prepare = ListenAt(p.Root)
	}
	return nil
}

// atSocket sets the root to a socket whose name is derived from the job's, in a directory
// that only this user may enter. All ranks check the directory: in another user's
// directory, the server could be that user's, too.
func (p *place) atSocket(e env, c *wireup.Config) error {
	dir, err := socketDir(e)
	if err != nil {
		return err
	}
	d := digest(p.id)
	c.Root = "unix:" + filepath.Join(dir, p.Launcher+"-"+hex.EncodeToString(d[:8]))
	if c.Rank == 0 {
		c.Listener, err = listen(c.Root)
	}
	return err
}

// ListenAt returns the Prepare function of the rank that serves at a root known to all
// ranks.
func ListenAt(root string) func(context.Context, *wireup.Config) error {
	return func(_ context.Context, c *wireup.Config) (err error) {
		c.Listener, err = listen(strings.SplitN(root, ",", 2)[0])
		return err
	}
}

// listen opens the socket of the server. If root has a host name, it listens on all
// addresses, because the name may resolve to another address on this host (127.0.1.1) than
// on others.
func listen(root string) (net.Listener, error) {
	network, address, err := wireup.ParseRoot(root)
	if err != nil {
		return nil, err
	}
	if network == "unix" {
		return listenUnix(address)
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("jobenv: %w: %s=%q: %w", wireup.ErrEnvironment, wireup.EnvRoot, root, err)
	}
	at := net.JoinHostPort("", port)
	if isLoopback(address) {
		at = address
	} else if ip, err := netip.ParseAddr(host); err == nil && isLocal(ip) {
		at = address
	}
	ln, err := net.Listen("tcp", at)
	if err != nil {
		return nil, fmt.Errorf("jobenv: rank 0 serves the wire-up at %s: %w (another port: %s)", root, err, wireup.EnvRoot)
	}
	return ln, nil
}

// listenUnix listens on a Unix socket; it replaces one left behind by a crashed process.
func listenUnix(path string) (net.Listener, error) {
	ln, err := net.Listen("unix", path)
	if errors.Is(err, syscall.EADDRINUSE) {
		c, dialErr := net.Dial("unix", path)
		if dialErr == nil {
			c.Close()
			return nil, fmt.Errorf("jobenv: %s: %w: another process serves the wire-up of this job there", path, wireup.ErrDuplicateRank)
		}
		info, statErr := os.Lstat(path)
		if errors.Is(dialErr, syscall.ECONNREFUSED) && statErr == nil && info.Mode().Type() == os.ModeSocket && os.Remove(path) == nil {
			ln, err = net.Listen("unix", path)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("jobenv: rank 0 serves the wire-up: %w", err)
	}
	return ln, nil
}

// isLoopback reports whether only this host can reach the address.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// isLocal reports whether the address is one of this host's.
func isLocal(ip netip.Addr) bool {
	return slices.Contains(hostAddrs(), ip.Unmap().WithZone(""))
}

// hostAddrs lists the addresses by which other hosts may reach this one.
func hostAddrs() (all []netip.Addr) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok {
			if ip, ok := netip.AddrFromSlice(n.IP); ok && ip.Unmap().IsGlobalUnicast() {
				all = append(all, ip.Unmap())
			}
		}
	}
	return all
}
