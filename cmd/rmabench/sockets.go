package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed33544411/rma/internal/bench/session"
	"github.com/seed33544411/rma/internal/bench/sockets"
	"github.com/seed33544411/rma/internal/jobenv"
)

// socketsCommand measures rmanet beside sockets.
func socketsCommand(s streams) *cobra.Command {
	var req sockets.Request
	var program, format, out string
	var quiet bool
	cmd := &cobra.Command{
		Use: "sockets", Short: "Measure rmanet beside Unix sockets and TCP",
		Long: `Measure programs written for package net between two processes of this host: over
rmanet on shm beside a Unix socket, and over rmanet on tcp beside TCP through the
loopback interface, in turn.

  echo    write one byte, read one byte
  http    GET of a few bytes on a kept connection, server and client of net/http
  stream  write 64 KiB, which the server reads and discards

Each connection has a goroutine that makes one operation after the other. µs/op is the
time of a series divided by its operations on all connections, p50 and p99 are of single
operations, CPU µs/op is the processor time of both processes. With --busy threads of a
third process compute meanwhile.

--program runs another program as the two processes. That of examples/grpc has gRPC's
unary calls and streams of 64 KiB besides (grpc, grpc-stream).`,
		Example: `  rmabench sockets
  rmabench sockets --workloads echo,http --transports rmanet-shm,unix --conns 1,8,64
  (cd examples/grpc && go build -o ../../bin/grpc .) && rmabench sockets --program bin/grpc`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !slices.Contains(sockets.Formats, format) {
				return usage(fmt.Errorf("--format %q: want %s", format, strings.Join(sockets.Formats, ", ")))
			}
			if err := req.Check(); err != nil {
				return usage(err)
			}
			if jobenv.InJob() {
				return usage(errors.New("sockets starts its ranks itself: run it outside of a job"))
			}
			return runSockets(cmd.Context(), s, req, program, format, out, quiet)
		},
	}
	fl := cmd.Flags()
	fl.StringSliceVar(&req.Transports, "transports", sockets.Transports, "transports")
	fl.StringSliceVar(&req.Workloads, "workloads", nil, "workloads (default: all of the program)")
	fl.IntSliceVar(&req.Conns, "conns", []int{1, 8}, "numbers of connections")
	fl.IntSliceVar(&req.Busy, "busy", []int{0, runtime.NumCPU()}, "numbers of computing threads beside")
	fl.StringVar(&program, "program", "", "the program that the processes run (default: this one)")
	fl.IntVar(&req.Rounds, "rounds", 3, "number of repetitions of everything, in turn")
	fl.DurationVar(&req.Time, "time", 300*time.Millisecond, "time per series")
	fl.StringVar(&format, "format", "table", "table, or json: one object per line for each series")
	fl.StringVar(&out, "out", "", "write results to this file instead of standard output, at the end")
	fl.BoolVarP(&quiet, "quiet", "q", false, "no progress on standard error")
	return cmd
}

func runSockets(ctx context.Context, s streams, req sockets.Request, program, format, out string, quiet bool) error {
	var bar io.Writer
	if !quiet {
		bar = s.err
	}
	workloads := len(req.Workloads)
	if workloads == 0 {
		workloads = len(sockets.Workloads()) // those of another program make the bar end late
	}
	p := newProgress(bar, req.Rounds*len(req.Busy)*len(req.Transports)*len(req.Conns)*workloads)
	var rs []sockets.Result
	err := session.SocketsLocal(ctx, req, program, s.err, func(r sockets.Result) error {
		p.text = r.Transport + " " + r.Workload
		p.done()
		rs = append(rs, r)
		return nil
	})
	p.close(err == nil)
	if err != nil {
		return err
	}
	w, commit := output(s, out)
	return errors.Join(sockets.Write(w, format, rs), commit())
}

// socketsChild is the command of the processes of session.SocketsLocal.
func socketsChild(ctx context.Context, in io.Reader, out io.Writer) (shows bool, err error) {
	return true, sockets.Child(ctx, in, out)
}
