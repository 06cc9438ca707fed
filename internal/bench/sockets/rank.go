package sockets

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/internal/bench"
)

// Arg is the argument with which the ranks' program is started.
const Arg = "sockets-rank"

// EnvDir names the directory of the ranks' sockets, which the parent process removes.
const EnvDir = "RMABENCH_SOCKETS_DIR"

// command is a message to the server.
type command struct {
	Transport string `json:"transport,omitempty"` // serve Workload over it
	Workload  string `json:"workload,omitempty"`
	Detach    bool   `json:"detach,omitempty"` // end the engine: the transports are sockets
	Stop      bool   `json:"stop,omitempty"`   // end serving
	Over      bool   `json:"over,omitempty"`   // no command follows
}

// reply is its answer.
type reply struct {
	Addr  string        `json:"addr,omitempty"`
	CPU   time.Duration `json:"cpu"` // of the server's process
	Error string        `json:"error,omitempty"`
}

// control carries commands and replies.
type control struct {
	c   io.ReadWriteCloser
	enc *json.Encoder
	dec *json.Decoder
}

func newControl(c io.ReadWriteCloser) *control {
	return &control{c, json.NewEncoder(c), json.NewDecoder(c)}
}

func (k *control) call(c command) (r reply, err error) {
	if err = k.enc.Encode(c); err == nil {
		err = k.dec.Decode(&r)
	}
	if err == nil && r.Error != "" {
		err = errors.New("server: " + r.Error)
	}
	return r, err
}

// Child is the main function of a program started with Arg, as one of two ranks. Rank 0 is
// the client of all workloads and writes results to out as JSON lines.
func Child(ctx context.Context, in io.Reader, out io.Writer, more ...Workload) error {
	have := append(Workloads(), more...)
	eng, err := rma.Open(ctx, nil)
	if err != nil {
		return err
	}
	s := &side{eng: eng, dir: os.Getenv(EnvDir), have: have}
	defer s.detach()
	path := filepath.Join(s.dir, "control")
	if eng.Rank() == 1 {
		l, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
		if err != nil {
			return err
		}
		defer l.Close()
		if err := eng.Barrier(ctx); err != nil {
			return err
		}
		c, err := l.Accept()
		if err != nil {
			return err
		}
		defer context.AfterFunc(ctx, func() { c.Close() })()
		return s.server(ctx, newControl(c))
	}
	var req Request
	if err := json.NewDecoder(in).Decode(&req); err != nil {
		return fmt.Errorf("request on standard input: %w", err)
	}
	if err := eng.Barrier(ctx); err != nil {
		return err
	}
	c, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { c.Close() })()
	enc := json.NewEncoder(out)
	return s.client(ctx, newControl(c), &req, func(r Result) error { return enc.Encode(r) })
}

// side is one of the two ranks.
type side struct {
	eng  *rma.Engine
	dir  string
	have []Workload
}

// detach ends the engine, so that it takes no processor time beside sockets.
func (s *side) detach() {
	if s.eng != nil {
		_ = s.eng.Close() // what it reports, such as a peer that has ended, is not of the measurement
	}
	s.eng = nil
}

// server executes commands of the client.
func (s *side) server(ctx context.Context, k *control) error {
	defer k.c.Close()
	stop := func() error { return nil }
	defer func() { _ = stop() }()
	for n := 0; ; n++ {
		var c command
		if err := k.dec.Decode(&c); err != nil {
			if errors.Is(err, io.EOF) { // the client has ended early, and says why
				return nil
			}
			return fmt.Errorf("command: %w", err)
		}
		var r reply
		var err error
		switch {
		case c.Transport != "":
			stop, r.Addr, err = s.serve(ctx, c, strconv.Itoa(n))
		case c.Stop:
			err = stop()
			stop = func() error { return nil }
		}
		if err == nil {
			r.CPU, err = bench.ProcessTime(os.Getpid())
		}
		if err != nil {
			r.Error = err.Error()
		}
		if err := k.enc.Encode(r); err != nil || c.Over {
			return err
		}
		if c.Detach {
			s.detach()
		}
	}
}

// serve offers a workload; stop ends it.
func (s *side) serve(ctx context.Context, c command, name string) (stop func() error, addr string, err error) {
	none := func() error { return nil }
	req := Request{Workloads: []string{c.Workload}}
	ws, err := req.choose(s.have)
	if err != nil {
		return none, "", err
	}
	l, err := listen(ctx, s.eng, c.Transport, s.dir, name)
	if err != nil {
		return none, "", err
	}
	ended := make(chan error, 1)
	go func() { ended <- ws[0].Serve(l) }()
	return func() error {
		if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			return err
		}
		return <-ended
	}, l.Addr().String(), nil
}

// client measures all series of the request, whose transports need the same engine.
func (s *side) client(ctx context.Context, k *control, req *Request, emit func(Result) error) error {
	defer k.c.Close()
	ws, err := req.choose(s.have)
	if err != nil {
		return err
	}
	if !overRma(req.Transports[0]) {
		if _, err := k.call(command{Detach: true}); err != nil {
			return err
		}
		s.detach()
	}
	for _, t := range req.Transports {
		for _, w := range ws {
			for _, n := range req.Conns {
				r := Result{Transport: t, Workload: w.Name, Conns: n, Bytes: w.Bytes}
				if err := s.measure(ctx, k, req, w, &r); err != nil {
					return fmt.Errorf("%s, %s, %d connections: %w", t, w.Name, n, err)
				}
				if err := emit(r); err != nil {
					return err
				}
			}
		}
	}
	_, err = k.call(command{Over: true})
	return err
}

// measure measures one series.
func (s *side) measure(ctx context.Context, k *control, req *Request, w Workload, r *Result) (err error) {
	at, err := k.call(command{Transport: r.Transport, Workload: w.Name})
	if err != nil {
		return err
	}
	dial, err := dialer(s.eng, r.Transport, at.Addr)
	if err != nil {
		return err
	}
	c, err := w.Dial(ctx, dial, r.Conns)
	if err != nil {
		return err
	}
	err = series(ctx, req.Time, c, r, func() (time.Duration, error) {
		there, err := k.call(command{})
		if err != nil {
			return 0, err
		}
		here, err := bench.ProcessTime(os.Getpid())
		return there.CPU + here, err
	})
	if err = errors.Join(err, c.Close()); err != nil {
		return err
	}
	_, err = k.call(command{Stop: true})
	return err
}
