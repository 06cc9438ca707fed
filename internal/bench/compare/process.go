package compare

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"time"
)

// Bounds of one run of a peer.
const (
	listenTime = 20 * time.Second // until its server listens: emulated machines take seconds
	askEvery   = 5 * time.Millisecond
	maxOutput  = 1 << 20
)

// program is a peer ready to run.
type program struct {
	*Peer
	at    Place
	env   []string
	limit time.Duration // of one run
}

// once makes one run of iters iterations and returns its figure.
func (p *program) once(ctx context.Context, t Test, iters int) (float64, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, p.limit, fmt.Errorf("%s: %w in %v", p.Program, ErrStuck, p.limit))
	defer cancel()
	port, err := freePort()
	if err != nil {
		return 0, err
	}
	client, err := p.Client(t, p.at.Addr, port, iters)
	if err != nil {
		return 0, err
	}
	server := p.Server(port)
	if len(p.at.Cores) > 1 {
		server, client = p.Pin(server, p.at.Cores[1]), p.Pin(client, p.at.Cores[0])
	}
	var said, out bounded
	srv := p.command(ctx, server, &said)
	if err := srv.Start(); err != nil {
		return 0, fmt.Errorf("start %s: %w", p.Program, err)
	}
	var served error // once done is closed
	done := make(chan struct{})
	go func() {
		defer close(done)
		served = srv.Wait()
	}()
	err = p.listens(ctx, port, done)
	if err == nil {
		err = p.command(ctx, client, &out).Run()
	}
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		cancel()
		<-done
		return 0, fmt.Errorf("%s %v: %w%s", p.Program, t, err, tail(&out, &said))
	}
	if <-done; served != nil {
		return 0, fmt.Errorf("%s %v, server: %w%s", p.Program, t, served, tail(&said))
	}
	return p.Parse(out.Bytes(), t)
}

// command is one side; it dies with ctx.
func (p *program) command(ctx context.Context, args []string, out *bounded) *exec.Cmd {
	c := exec.CommandContext(ctx, p.Program, args...)
	c.Env = append(os.Environ(), p.env...)
	c.Stdout, c.Stderr = out, out
	c.WaitDelay = time.Second
	return c
}

// listens waits until the server listens. The kernel's table is asked, because
// such programs take a connection for their peer.
func (p *program) listens(ctx context.Context, port int, ended <-chan struct{}) error {
	deadline := time.NewTimer(listenTime)
	defer deadline.Stop()
	look := time.NewTicker(askEvery)
	defer look.Stop()
	for !listening(port) {
		select {
		case <-look.C:
		case <-deadline.C:
			return fmt.Errorf("server does not listen after %v: %w", listenTime, ErrStuck)
		case <-ended:
			return fmt.Errorf("server ended before its client came: %w", ErrOutput)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// listening asks the kernel whether something listens on a TCP port.
func listening(port int) bool {
	for _, name := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		b, _ := os.ReadFile(name)
		if listens(string(b), port) {
			return true
		}
	}
	return false
}

// listens looks a port up in a table of the form of /proc/net/tcp.
func listens(table string, port int) bool {
	want := fmt.Sprintf(":%04X", port)
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		if len(f) > 3 && strings.HasSuffix(f[1], want) && f[3] == "0A" { // LISTEN
			return true
		}
	}
	return false
}

// freePort is one that nothing listens on now.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// bounded is a buffer that forgets what exceeds maxOutput.
type bounded struct{ bytes.Buffer }

func (b *bounded) Write(p []byte) (int, error) {
	if room := maxOutput - b.Len(); room < len(p) {
		b.Buffer.Write(p[:max(room, 0)])
		return len(p), nil
	}
	return b.Buffer.Write(p)
}

// tail is the last line that any of outs holds, for an error.
func tail(outs ...*bounded) string {
	for _, o := range outs {
		lines := strings.Split(strings.TrimSpace(o.String()), "\n")
		if last := strings.TrimSpace(lines[len(lines)-1]); last != "" {
			return fmt.Sprintf(": %.200q", last)
		}
	}
	return ""
}
