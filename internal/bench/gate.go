package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
)

// Gate lets several requests that are measured at the same time on one host begin
// each of their points together, whatever each needed to prepare: rank 0 of each
// comes and waits until all have come. Path goes into Request.Gate.
type Gate struct {
	ln   net.Listener
	dir  string
	n    int
	done sync.WaitGroup
}

// OpenGate opens a gate for n requests. It has a goroutine until Close.
func OpenGate(n int) (*Gate, error) {
	dir, err := os.MkdirTemp("", "rmabench-gate-") // nobody else may enter it
	if err != nil {
		return nil, err
	}
	g := &Gate{dir: dir, n: n}
	if g.ln, err = net.Listen("unix", g.Path()); err != nil {
		return nil, errors.Join(fmt.Errorf("gate: %w", err), os.RemoveAll(dir))
	}
	g.done.Go(g.keep)
	return g, nil
}

// Path is the address of the gate.
func (g *Gate) Path() string { return filepath.Join(g.dir, "gate") }

// keep lets through those that have come whenever they are n.
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
				_, _ = w.Write([]byte{1}) // who is gone needs no word
			}
			_ = w.Close()
		}
		waiting = waiting[:0]
		if err != nil {
			return
		}
	}
}

// Close shuts the gate: who waits there gets an error.
func (g *Gate) Close() error {
	err := g.ln.Close()
	g.done.Wait()
	return errors.Join(err, os.RemoveAll(g.dir))
}

// errGate says that a gate was shut.
var errGate = errors.New("another of the requests measured at the same time has failed")

// pass waits at the gate until all others have come there too.
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
