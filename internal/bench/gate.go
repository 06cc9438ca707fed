package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"sync"

	"github.com/seed33544411/rma/internal/tempdir"
)

// Gate starts each point of several requests that are measured at the same time on one
// host together, however long each took to prepare: rank 0 of each request connects and
// waits for the others. Path goes into Request.Gate.
type Gate struct {
	ln   net.Listener
	dir  *tempdir.Dir
	n    int
	done sync.WaitGroup
}

// OpenGate opens a gate for n requests. Its goroutine runs until Close.
func OpenGate(n int) (*Gate, error) {
	dir, err := tempdir.New("", "rmabench-gate-") // accessible to this user only
	if err != nil {
		return nil, err
	}
	g := &Gate{dir: dir, n: n}
	if g.ln, err = net.Listen("unix", g.Path()); err != nil {
		return nil, errors.Join(fmt.Errorf("gate: %w", err), dir.Close())
	}
	g.done.Go(g.keep)
	return g, nil
}

// Path is the address of the gate.
func (g *Gate) Path() string { return filepath.Join(g.dir.Path, "gate") }

// keep releases the waiting connections whenever there are n of them.
func (g *Gate) keep() {
	var waiting []net.Conn
	for {
		c, err := g.ln.Accept()
		if err == nil {
			waiting = append(waiting, c)
		}
		if err == nil && len(waiting) < g.n {
			continue
		}
		for _, w := range waiting {
			if err == nil {
				_, _ = w.Write([]byte{1}) // a connection that is gone is not an error
			}
			_ = w.Close()
		}
		waiting = waiting[:0]
		if err != nil {
			return
		}
	}
}

// Close shuts the gate: waiting requests get an error.
func (g *Gate) Close() error {
	err := g.ln.Close()
	g.done.Wait()
	return errors.Join(err, g.dir.Close())
}

// errGate reports that the gate was shut.
var errGate = errors.New("another of the requests measured at the same time has failed")

// pass waits at the gate until all other requests have arrived.
func pass(ctx context.Context, path string) error {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return fmt.Errorf("gate: %w", err)
	}
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	defer c.Close()
	var b [1]byte
	if _, err := c.Read(b[:]); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("gate: %w", errGate)
	}
	return nil
}
