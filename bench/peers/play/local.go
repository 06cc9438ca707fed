package play

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
)

// ListenLocal listens on this host, "tcp" on the loopback or "unix", at an address
// that is free, until Close or the end of ctx.
func ListenLocal(ctx context.Context, network string) (net.Listener, error) {
	l := &localListener{}
	addr := "127.0.0.1:0"
	if network == "unix" {
		var err error
		if addr, l.dir, err = socketName(); err != nil {
			return nil, err
		}
	}
	var err error
	if l.Listener, err = net.Listen(network, addr); err != nil {
		return nil, errors.Join(err, l.remove())
	}
	context.AfterFunc(ctx, func() { l.Listener.Close() })
	return l, nil
}

// socketName is a name for a Unix socket: an abstract one where there are such, which
// goes with its process; else a path in a directory of its own.
func socketName() (name, dir string, err error) {
	if runtime.GOOS == "linux" {
		return fmt.Sprintf("@rmapeer-%d", os.Getpid()), "", nil
	}
	if dir, err = os.MkdirTemp("", "rmapeer"); err != nil {
		return "", "", err
	}
	return filepath.Join(dir, "s"), dir, nil
}

type localListener struct {
	net.Listener
	dir string // of the socket, or ""
}

// Close closes the listener; it may be called twice.
func (l *localListener) Close() error {
	if err := l.Listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return errors.Join(err, l.remove())
	}
	return l.remove()
}

func (l *localListener) remove() error {
	if l.dir == "" {
		return nil
	}
	return os.RemoveAll(l.dir)
}
