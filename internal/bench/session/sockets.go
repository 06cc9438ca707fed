package session

import (
	"context"
	"errors"
	"io"

	"github.com/seed33544411/rma/internal/bench/overlap"
	"github.com/seed33544411/rma/internal/bench/sockets"
	"github.com/seed33544411/rma/internal/tempdir"
)

// SocketsLocal measures sockets and rmanet between two processes that it starts on this host,
// new ones for each transport, in turn: program, or this one, with sockets.Arg. The busy
// threads are those of this process.
func SocketsLocal(ctx context.Context, req sockets.Request, program string, stderr io.Writer, emit func(sockets.Result) error) (err error) {
	if err := req.Check(); err != nil {
		return err
	}
	for round := range req.Rounds {
		for _, busy := range req.Busy {
			for _, t := range req.Transports {
				one := req
				one.Transports = []string{t}
				end := overlap.Busy(busy)
				err := socketsRanks(ctx, one, program, stderr, func(r sockets.Result) error {
					r.Round, r.Busy = round, busy
					return emit(r)
				})
				end()
				if err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// socketsRanks measures one transport between two new processes.
func socketsRanks(ctx context.Context, req sockets.Request, program string, stderr io.Writer, emit func(sockets.Result) error) (err error) {
	dir, err := tempdir.New("", "rmabench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	spec := ranks(sockets.Arg, 2, sockets.Fabric(req.Transports[0]), sockets.EnvDir+"="+dir.Path)
	spec.Path = program
	return localResults(ctx, spec, req, stderr, -1, func(r *sockets.Result) bool { return r.Workload != "" }, emit)
}
