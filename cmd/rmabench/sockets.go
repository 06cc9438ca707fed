package main

import (
	"context"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed33544411/rma/internal/bench/session"
	"github.com/seed33544411/rma/internal/bench/sockets"
)

// socketsCommand measures rmanet beside sockets.
func socketsCommand(s streams) *cobra.Command {
	var req sockets.Request
	var program string
	var o outFlags
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
		Args: startsRanks,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(rowFormats); err != nil {
				return usage(err)
			}
			if err := req.Check(); err != nil {
				return usage(err)
			}
			if program == "" {
				if err := req.CheckWorkloads(); err != nil {
					return usage(err)
				}
			}
			return runSockets(cmd.Context(), s, req, program, &o)
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
	o.flags(fl, "table, or json: one object per line for each series")
	return cmd
}

func runSockets(ctx context.Context, s streams, req sockets.Request, program string, o *outFlags) error {
	workloads := len(req.Workloads)
	if workloads == 0 {
		workloads = len(sockets.Workloads()) // those of another program make the bar end late
	}
	total := req.Rounds * len(req.Busy) * len(req.Transports) * len(req.Conns) * workloads
	rs, err := gather(o.bar(s), total, func(r *sockets.Result) string { return r.Transport + " " + r.Workload },
		func(emit func(sockets.Result) error) error {
			return session.SocketsLocal(ctx, req, program, s.err, emit)
		})
	if err != nil {
		return err
	}
	return writeRows(o, s, rs, sockets.WriteText)
}
