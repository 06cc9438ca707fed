package play

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strconv"
	"syscall"
	"time"
)

// options are the values of the flags.
type options struct {
	Plan
	addr  string
	port  int
	cpu   int
	limit time.Duration
}

// Exit codes.
const (
	exitOK = iota
	exitFailed
	exitUsage
)

// Main runs a benchmark program: `serve` or `run`, see the package comment, or `version`.
// It returns the exit code.
func Main(t Transport, args []string, out, errs io.Writer) int {
	o := options{}
	f := flag.NewFlagSet(t.Name(), flag.ContinueOnError)
	f.SetOutput(errs)
	f.Usage = func() {
		fmt.Fprintf(errs, "%s measures messages of %s between two processes: serve in one, run in the other.\n", os.Args[0], t.Name())
		f.PrintDefaults()
	}
	f.StringVar(&o.addr, "addr", "127.0.0.1", "where the server waits for its client")
	f.IntVar(&o.port, "port", 0, "and at which TCP port; serve: 0 means any, which is said")
	f.IntVar(&o.cpu, "cpu", -1, "processor for this side, where the library is faster with one of its own")
	f.DurationVar(&o.limit, "limit", time.Minute, "give up after this time")
	f.StringVar(&o.Net, "net", t.Nets()[0], fmt.Sprintf("run: kind of connection, one of %v", t.Nets()))
	f.StringVar(&o.Test, "test", Tests[0], fmt.Sprintf("run: one of %v", Tests))
	f.IntVar(&o.Size, "size", 8, "run: bytes of a message")
	f.IntVar(&o.Iters, "iters", 10_000, "run: messages of a stream, or round trips")
	f.IntVar(&o.Batch, "batch", 1, "run: messages of a stream that are flushed together; calls at a time")
	f.BoolVar(&o.Unary, "unary", false, "run: calls, where the library has both calls and streams")
	if len(args) == 0 {
		f.Usage()
		return exitUsage
	}
	if err := f.Parse(args[1:]); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return exitOK
		}
		return exitUsage
	}
	if f.NArg() > 0 || o.port < 0 || o.port > 65535 {
		f.Usage()
		return exitUsage
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	ctx, cancel = context.WithTimeoutCause(ctx, o.limit, fmt.Errorf("not finished within %v: %w", o.limit, os.ErrDeadlineExceeded))
	defer cancel()
	at := net.JoinHostPort(o.addr, strconv.Itoa(o.port))
	var err error
	switch args[0] {
	case "serve":
		var l net.Listener
		if l, err = net.Listen("tcp", at); err == nil {
			fmt.Fprintln(out, "listening on", l.Addr())
			err = Serve(ctx, t, l, func(p *Plan) error { return settle(t, p, o.cpu) })
		}
	case "version":
		fmt.Fprintln(out, version(t))
	case "run":
		var r Result
		err = o.Check(t)
		if err == nil {
			err = settle(t, &o.Plan, o.cpu)
		}
		if err == nil {
			r, err = Run(ctx, t, &o.Plan, at)
		}
		if err == nil {
			err = r.Write(out)
		}
	default:
		f.Usage()
		return exitUsage
	}
	if err != nil {
		return o.failed(t, errs, err)
	}
	return exitOK
}

// settle brings the process into the state in which the library is fastest.
func settle(t Transport, p *Plan, cpu int) error {
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(memory)
	if cpu < 0 || !t.Pins(p) {
		return nil
	}
	return pin(cpu)
}

// memory is the size of the heap in bytes at which garbage collection starts.
const memory = 512 << 20

func (o *options) failed(t Transport, errs io.Writer, err error) int {
	fmt.Fprintf(errs, "%s: %v\n", t.Name(), err)
	if errors.Is(err, ErrPlan) {
		return exitUsage
	}
	return exitFailed
}
