package jobenv

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/seed33544411/rma/internal/wireup"
)

// pmi reads the variables of a launcher that speaks PMI-1: Hydra (mpirun of MPICH and its
// derivatives) and srun --mpi=pmi2. The launcher's key-value store carries the address of
// rank 0, and a secret that rank 0 generates.
func pmi(e env) (*place, error) {
	if e("PMI_FD") == "" {
		return nil, fmt.Errorf("%w: PMI_PORT without PMI_FD: run mpirun without -pmi-port, or set RMA_RANK, RMA_SIZE and RMA_ROOT", wireup.ErrEnvironment)
	}
	c, err := e.numbers("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID")
	if err != nil {
		return nil, err
	}
	p := &place{
		id:      "pmi " + e("PMI_JOBID"),
		oneHost: e.is("MPI_LOCALNRANKS", c.Size) || e("MPI_LOCALNRANKS") == "" && e.is("SLURM_STEP_NUM_NODES", 1),
	}
	p.Config = c
	p.TokenHint = "without RMA_ROOT the launcher brings one; else export RMA_TOKEN=$(openssl rand -hex 32) before mpirun"
	if p.oneHost {
		p.LocalSize = c.Size
	}
	host := e("MPIR_CVAR_CH3_INTERFACE_HOSTNAME") // the launcher's name of this host
	if host == "" {
		host = e("SLURMD_NODENAME")
	}
	p.prepare = func(ctx context.Context, c *wireup.Config) error {
		conn, err := pmiConn(e)
		if err != nil {
			return err
		}
		defer conn.Close()
		if err := p.exchange(ctx, conn, e, host, c); err != nil {
			if c.Listener != nil {
				c.Listener.Close()
				c.Listener = nil
			}
			return fmt.Errorf("jobenv: ask the launcher (PMI) where rank 0 is: %w", err)
		}
		return nil
	}
	return p, nil
}

// pmiKey is the key under which rank 0 publishes its address and secret.
const pmiKey = "rma-root"

// exchange makes rank 0 listen and publish its address, and the other ranks read it.
func (p *place) exchange(ctx context.Context, conn net.Conn, e env, host string, c *wireup.Config) error {
	w := newPMIWire(ctx, conn)
	defer w.stop()
	if c.Rank == 0 {
		secret := make([]byte, 32)
		rand.Read(secret) // never fails
		var err error
		if c.Root, c.Listener, err = p.open(e, host, hex.EncodeToString(secret[:8])); err != nil {
			return err
		}
		if c.Token == nil {
			c.Token = secret
		}
	}
	// In hexadecimal, because PMI gives spaces and equals signs a meaning.
	text, err := w.share(c.Rank == 0, pmiKey, hex.EncodeToString([]byte(c.Root+"\n"+hex.EncodeToString(c.Token))))
	if err != nil {
		return err
	}
	if c.Rank == 0 {
		return nil
	}
	raw, err := hex.DecodeString(text)
	if err != nil {
		return fmt.Errorf("%w: value of %s", errPMI, pmiKey)
	}
	root, token, _ := strings.Cut(string(raw), "\n")
	given := c.Token
	if c.Token, err = hex.DecodeString(token); err != nil {
		return fmt.Errorf("%w: value of %s", errPMI, pmiKey)
	}
	if given != nil {
		c.Token = given // so that a wrong one is refused
	}
	c.Root = root
	return nil
}

// open opens the server's socket under an unused name.
func (p *place) open(e env, host, unique string) (root string, ln net.Listener, err error) {
	if p.oneHost {
		dir, err := socketDir(e)
		if err != nil {
			return "", nil, err
		}
		root = "unix:" + filepath.Join(dir, "pmi-"+unique)
		ln, err = listen(root)
		return root, ln, err
	}
	if ln, err = net.Listen("tcp", ":0"); err != nil {
		return "", nil, err
	}
	port := strconv.Itoa(ln.Addr().(*net.TCPAddr).Port)
	if host == "" {
		host, _ = os.Hostname()
	}
	var roots []string
	if host != "" {
		roots = append(roots, net.JoinHostPort(host, port))
	}
	for _, ip := range hostAddrs() {
		if len(roots) < maxHosts/2 {
			roots = append(roots, net.JoinHostPort(ip.String(), port))
		}
	}
	return strings.Join(roots, ","), ln, nil
}

// pmiConn connects with the launcher, by the socket that it has left open for the process.
func pmiConn(e env) (net.Conn, error) {
	fd, err := strconv.Atoi(e("PMI_FD"))
	if err != nil || fd < 3 {
		return nil, fmt.Errorf("jobenv: %w: PMI_FD=%q: want the number of an open socket", wireup.ErrEnvironment, e("PMI_FD"))
	}
	conn, err := connOf(fd)
	if err != nil {
		return nil, fmt.Errorf("jobenv: %w: PMI_FD=%d is not an open socket (a program between mpirun and this one has closed it, or this is the second job of the process); set %s=host:port: %w",
			wireup.ErrEnvironment, fd, wireup.EnvRoot, err)
	}
	return conn, nil
}
