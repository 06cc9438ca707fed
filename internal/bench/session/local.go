package session

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/seed33544411/rma/internal/bench"
	"github.com/seed33544411/rma/internal/bench/overlap"
	"github.com/seed33544411/rma/internal/bench/sockets"
	"github.com/seed33544411/rma/internal/jobenv"
	"github.com/seed33544411/rma/internal/launch"
	"github.com/seed33544411/rma/internal/links"
)

// Children are the main functions of the processes that functions of this package start, by
// the argument with which they start this program again: it must call that function then. It
// reads the request from in and writes results as JSON lines to out; shows reports whether its
// rank has errors to show.
var Children = map[string]func(ctx context.Context, in io.Reader, out io.Writer) (shows bool, err error){
	ChildArg:      child(InJob),
	engineArg:     engineChild(bench.RunEngine),
	plogpArg:      child(plogpRank),
	startupArg:    child(startupRank),
	railsArg:      child(railsRank),
	choiceArg:     choiceChild,
	overlapArg:    engineChild(overlap.Run),
	collectiveArg: collectiveChild,
	sockets.Arg: func(ctx context.Context, in io.Reader, out io.Writer) (bool, error) {
		return true, sockets.Child(ctx, in, out)
	},
}

// Arguments of Children.
const (
	ChildArg      = "measuring-rank" // of Local
	engineArg     = "engine-rank"
	plogpArg      = "sampling-rank"
	startupArg    = "starting-rank"
	railsArg      = "rails-rank"
	choiceArg     = "comparing-rank"
	overlapArg    = "computing-rank"
	collectiveArg = "collective-rank"
)

// maxRequest bounds the request that a child reads.
const maxRequest = 1 << 20

// Local measures between two processes that it starts on this host: this program with
// ChildArg. Their diagnostics go to stderr.
func Local(ctx context.Context, req bench.Request, stderr io.Writer, emit Emit) error {
	if err := req.Check(); err != nil {
		return err
	}
	return localPoints(ctx, ranks(ChildArg, 2, ""), req, stderr, emit)
}

// localPoints runs the ranks of spec until each point of req has a result.
func localPoints(ctx context.Context, spec launch.Spec, req bench.Request, stderr io.Writer, emit Emit) error {
	return localResults(ctx, spec, req, stderr, req.Points(), func(r *bench.Result) bool { return r.CheckRead() == nil }, emit)
}

// localResults runs this program as two ranks, see localRanks. Lines of JSON that is accepts
// as results go to emit; want is their number, 0: any, -1: at least one.
func localResults[T any](ctx context.Context, spec launch.Spec, req any, stderr io.Writer, want int, is func(*T) bool, emit func(T) error) error {
	n := 0
	err := localRanks(ctx, spec, req, stderr, func(b []byte) (bool, error) {
		var r T
		if json.Unmarshal(b, &r) != nil || !is(&r) {
			return false, nil //nolint:nilerr // a line that is no result is passed on
		}
		n++
		return true, emit(r)
	})
	switch {
	case err == nil && want > 0 && n != want:
		err = fmt.Errorf("%d results arrived, want %d", n, want)
	case err == nil && want < 0 && n == 0:
		err = errors.New("no result arrived")
	}
	return err
}

// localResult is localResults for one result.
func localResult[T any](ctx context.Context, arg string, req any, stderr io.Writer, is func(*T) bool) (res *T, err error) {
	err = localResults(ctx, ranks(arg, 2, ""), req, stderr, 1, is, func(r T) error {
		res = &r
		return nil
	})
	return res, err
}

// ranks returns n ranks of this program with an argument, and env added to their environment.
// Their engines use the link fabric, or the one they choose if it is empty or "auto".
func ranks(arg string, n int, fabric string, env ...string) launch.Spec {
	if fabric != "" && fabric != "auto" {
		env = append(env, links.EnvFabric+"="+fabric)
	}
	return launch.Spec{N: n, Args: []string{arg}, Env: env}
}

// localRanks runs spec.Path, or this program, as the ranks of spec, with the request on standard input. It
// passes every line of their standard output to take, which reports whether the line was a
// result; other lines go to stderr. If ctx ends or take fails, that is the error, and what the
// ranks write from then on is dropped: it says that others have ended.
func localRanks(ctx context.Context, spec launch.Spec, req any, stderr io.Writer, take func([]byte) (bool, error)) error {
	if spec.Path == "" {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		spec.Path = self
	}
	in, err := json.Marshal(req)
	if err != nil {
		return err
	}
	outer := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stderr = &untilEnd{ctx, stderr}
	out := &lines{take: take, other: stderr, fail: cancel}
	spec.Stdin, spec.Stdout, spec.Stderr = bytes.NewReader(in), out, stderr
	code, err := launch.Run(ctx, spec)
	if cause := context.Cause(ctx); cause != nil && out.failed {
		return cause
	}
	if err != nil && outer.Err() != nil {
		return outer.Err()
	}
	var rank *launch.RankError
	if errors.As(err, &rank) && rank.Signal == 0 {
		return fmt.Errorf("%w (exit code %d)", ErrReported, rank.Code)
	}
	if err == nil && code != 0 {
		err = fmt.Errorf("the measuring ranks ended with exit code %d", code)
	}
	return err
}

// untilEnd passes what is written on until ctx ends.
type untilEnd struct {
	ctx context.Context
	to  io.Writer
}

func (u *untilEnd) Write(b []byte) (int, error) {
	if u.ctx.Err() != nil {
		return len(b), nil //nolint:nilerr // it is dropped
	}
	return u.to.Write(b)
}

// ErrReported is a failure that a child has already reported on stderr.
var ErrReported = errors.New("measuring failed")

// child returns the entry of Children that runs run, with the request on rank 0 and a zero one on
// the others.
func child[Q, R any](run func(context.Context, Q, func(R) error) (bool, error)) func(context.Context, io.Reader, io.Writer) (bool, error) {
	return func(ctx context.Context, in io.Reader, out io.Writer) (shows bool, err error) {
		var req Q
		if err := childRequest(in, &req); err != nil {
			return true, err
		}
		return run(ctx, req, lineTo[R](out))
	}
}

// lineTo returns a function that writes results as JSON lines.
func lineTo[T any](out io.Writer) func(T) error {
	enc := json.NewEncoder(out)
	return func(x T) error { return enc.Encode(x) }
}

// childRequest reads the request on rank 0; the other ranks have none.
func childRequest(in io.Reader, req any) error {
	cfg, err := jobenv.FromEnv()
	if err != nil || cfg.Rank != 0 {
		return err
	}
	b, err := io.ReadAll(io.LimitReader(in, maxRequest))
	if err == nil {
		err = json.Unmarshal(b, req)
	}
	if err != nil {
		return fmt.Errorf("request on standard input: %w", err)
	}
	return nil
}

// lines splits a child's standard output into results and other lines.
type lines struct {
	take   func(line []byte) (result bool, err error)
	other  io.Writer
	fail   context.CancelCauseFunc
	buf    []byte
	failed bool
}

// maxPending bounds an incomplete line.
const maxPending = 1 << 20

func (l *lines) Write(b []byte) (int, error) {
	n := len(b)
	for {
		i := bytes.IndexByte(b, '\n')
		if i < 0 {
			break
		}
		l.line(append(l.buf, b[:i]...))
		l.buf, b = l.buf[:0], b[i+1:]
	}
	if l.buf = append(l.buf, b...); len(l.buf) > maxPending {
		l.line(l.buf)
		l.buf = l.buf[:0]
	}
	return n, nil
}

func (l *lines) line(b []byte) {
	ok, err := l.take(b)
	if !ok {
		fmt.Fprintf(l.other, "%s\n", b)
	}
	if err != nil && !l.failed {
		l.failed = true
		l.fail(err)
	}
}
