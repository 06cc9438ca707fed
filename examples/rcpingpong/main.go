package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed33544411/rma/verbs"
)

// options are those of ibv_rc_pingpong, under the same letters.
type options struct {
	port     int // TCP
	device   string
	ibPort   int
	size     int
	mtu      verbs.MTU
	rxDepth  int
	iters    int
	sl       int
	events   bool
	gidIndex int // -1: choose
	check    bool
	timeout  time.Duration
}

// errUsage marks errors in the command line.
var errUsage = errors.New("usage")

func command() *cobra.Command {
	var o options
	var mtu int
	c := &cobra.Command{
		Use:   "rcpingpong [flags] [host]",
		Short: "Play either side of ibv_rc_pingpong: without a host the server, with one the client",
		Example: `  rcpingpong -d rxe0                  # server; client: ibv_rc_pingpong -d rxe0 -g 1 HOST
  rcpingpong -d rxe0 -c -e HOST       # client of: ibv_rc_pingpong -d rxe0 -g 1 -c
  rcpingpong -s 65536 -n 10000 HOST   # 10000 messages of 64 KiB`,
		Args:          cobra.MaximumNArgs(1),
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case o.size < 1 || o.size > 1<<30:
				return fmt.Errorf("%w: -s %d: want 1 to %d bytes", errUsage, o.size, 1<<30)
			case o.iters < 1:
				return fmt.Errorf("%w: -n %d: want at least 1", errUsage, o.iters)
			case o.rxDepth < 1 || o.rxDepth > 1<<14:
				return fmt.Errorf("%w: -r %d: want 1 to %d", errUsage, o.rxDepth, 1<<14)
			case o.port < 1 || o.port > 65535:
				return fmt.Errorf("%w: -p %d: want 1 to 65535", errUsage, o.port)
			case o.sl < 0 || o.sl > 15:
				return fmt.Errorf("%w: -l %d: want 0 to 15", errUsage, o.sl)
			}
			if o.mtu = verbs.MTUOf(mtu); o.mtu == 0 {
				return fmt.Errorf("%w: -m %d: want 256, 512, 1024, 2048 or 4096", errUsage, mtu)
			}
			host := ""
			if len(args) == 1 {
				host = args[0]
			}
			return play(c.Context(), o, host, c.OutOrStdout())
		},
	}
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return fmt.Errorf("%w: %w", errUsage, err) })
	f := c.Flags()
	f.IntVarP(&o.port, "port", "p", 18515, "TCP port to exchange addresses on")
	f.StringVarP(&o.device, "ib-dev", "d", "", "RDMA device (default: the only one)")
	f.IntVarP(&o.ibPort, "ib-port", "i", 1, "port of the device")
	f.IntVarP(&o.size, "size", "s", 4096, "bytes of a message")
	f.IntVarP(&mtu, "mtu", "m", 1024, "path MTU")
	f.IntVarP(&o.rxDepth, "rx-depth", "r", 500, "receives posted at a time")
	f.IntVarP(&o.iters, "iters", "n", 1000, "messages each way")
	f.IntVarP(&o.sl, "sl", "l", 0, "service level")
	f.BoolVarP(&o.events, "events", "e", false, "sleep on completion events instead of polling")
	f.IntVarP(&o.gidIndex, "gid-idx", "g", -1, "index of the local GID (default: chosen; the choice is printed)")
	f.BoolVarP(&o.check, "chk", "c", false, "validate the data received")
	f.DurationVar(&o.timeout, "timeout", time.Minute, "give up after this time")
	return c
}

// play does one whole run and reports on w.
func play(ctx context.Context, o options, host string, w io.Writer) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, o.timeout, fmt.Errorf("gave up after %v (--timeout): %w", o.timeout, context.DeadlineExceeded))
	defer cancel()
	p, err := open(o, host == "")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	fmt.Fprintf(w, "device %s, %s\n", p.ctx.Name(), p.gid.Reason)
	fmt.Fprintf(w, "  local address:  %v\n", p.dest())

	if err := p.meet(ctx, host, w); err != nil {
		return err
	}
	r, err := p.run(ctx)
	if err != nil {
		return err
	}
	s := r.elapsed.Seconds()
	fmt.Fprintf(w, "%d bytes in %.2f seconds = %.2f Mbit/sec\n", r.bytes, s, float64(r.bytes)*8/1e6/s)
	fmt.Fprintf(w, "%d iters in %.2f seconds = %.2f usec/iter", r.iters, s, s*1e6/float64(r.iters))
	if o.events {
		fmt.Fprintf(w, ", %d events", r.events)
	}
	if o.check {
		fmt.Fprint(w, ", every byte checked")
	}
	fmt.Fprintln(w)
	return nil
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "rcpingpong:", err)
		if errors.Is(err, errUsage) {
			os.Exit(2)
		}
		os.Exit(1)
	}
}
