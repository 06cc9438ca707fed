package bench

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/links"
	"github.com/seed33544411/rma/internal/offheap"
)

// Measurements through package rma alone, as an application would write them: op put
// and send of Plan. Run measures one floor below (links, channels); the difference is
// the overhead of the engine.
//
// Ranks form pairs: rank r of the first half with rank r + size/2; all pairs run at
// once. A phase is a number of operations, which the origin announces to the target in
// a message.

// Tags of control messages; data messages have tag 0.
const (
	engineAsk    = 1 + iota // origin to target: the length of a phase, or the request
	engineAnswer            // target to origin: ready, then the end of the phase: all data has arrived
	engineResult            // origin to rank 0
	engineTaken             // acknowledges a request or a result
	engineOver              // origin to target: all puts of a phase have completed
)

// engineMeet, in place of the length of a phase, starts a barrier of all ranks; 0 ends
// a point.
const engineMeet = -1

// engineMaxControl bounds a control message, which is JSON.
const engineMaxControl = 64 << 10

// engineSide is one rank of a pair.
type engineSide struct {
	eng    *rma.Engine
	peer   *rma.Peer
	win    *rma.Window
	other  int // number of the other rank
	origin bool
	size   int
	span   int // bytes of each of the two areas of the window
	window int
	batch  int   // messages posted at once; the window holds whole batches
	stall  int64 // ticks
	w      cpu.Spinner
	cpu    time.Duration     // processor time of both processes in the last phase; negative: not known
	reqs   []rma.Request     // the window of a stream
	recvs  []rma.RecvRequest // of the receiver of a stream
	buf    []byte
	seq    uint64 // of puts
}

// Layout of a window: flag words and their sources, then from offIn on the two data
// areas, in and out.
const (
	offWord    = 0
	offWordOut = 128
	offIn      = 4096
)

// RunEngine measures req.Plans, of put and send, between the ranks of an engine.
// Every rank calls it; only rank 0's req and emit count. The garbage collector is off
// meanwhile.
func RunEngine(ctx context.Context, eng *rma.Engine, req Request, emit func(Result) error) error {
	if eng.Size() < 2 || eng.Size()%2 != 0 {
		return fmt.Errorf("%w: %d ranks, want pairs", ErrPlan, eng.Size())
	}
	if err := engineShare(ctx, eng, &req); err != nil {
		return err
	}
	pairs := eng.Size() / 2
	if req.Ranks == 0 {
		req.Ranks = eng.Size()
	}
	if req.Pin {
		defer pin(eng.Rank() / pairs)()
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	machine, rec := ThisMachine(), newRecorder()
	for _, st := range req.steps() {
		p := &req.Plans[st.plan]
		res := Result{Test: p.Test, Op: p.Op, Size: st.size, Round: st.round, Label: req.Label, Machine: machine, Mode: p.Mode}
		if err := enginePoint(ctx, eng, p, st.size, req.spinner(), rec, &res); err != nil {
			return fmt.Errorf("engine: %s %s %d bytes: %w", p.Test, p.Op, st.size, err)
		}
		if eng.Rank() == 0 {
			if err := emit(res); err != nil {
				return err
			}
		}
	}
	return eng.Barrier(ctx)
}

// CheckEngine reports plans that RunEngine cannot measure.
func (r *Request) CheckEngine() error {
	if err := r.Check(); err != nil {
		return err
	}
	for i := range r.Plans {
		if p := &r.Plans[i]; p.Op != Put && p.Op != Send || p.Validate || p.Tags > 1 {
			return fmt.Errorf("%w: %s through the engine: want put or send, one tag, no validation", ErrPlan, p.Op)
		}
	}
	return nil
}

// engineShare sends rank 0's request to all ranks; each of them checks it.
func engineShare(ctx context.Context, eng *rma.Engine, req *Request) error {
	if eng.Rank() != 0 {
		b, err := engineTake(ctx, eng.Peer(0), engineAsk)
		if err == nil {
			err = json.Unmarshal(b, req)
		}
		if err == nil {
			err = req.CheckEngine()
		}
		return wrap("request of rank 0", err)
	}
	if err := req.CheckEngine(); err != nil {
		return err
	}
	b, err := json.Marshal(req)
	if err == nil && len(b) > engineMaxControl {
		err = fmt.Errorf("%w: %d bytes of request", ErrPlan, len(b))
	}
	for r := 1; r < eng.Size() && err == nil; r++ {
		err = engineGive(ctx, eng.Peer(r), engineAsk, b)
	}
	return err
}

// engineGive sends b to a rank and waits for the acknowledgement.
func engineGive(ctx context.Context, p *rma.Peer, tag uint32, b []byte) error {
	taken := p.RecvTag(engineTaken, nil)
	err := p.SendTag(tag, b).Wait(ctx)
	if err == nil {
		_, err = taken.Wait(ctx)
	}
	return err
}

// engineTake receives and acknowledges a message of engineGive.
func engineTake(ctx context.Context, p *rma.Peer, tag uint32) ([]byte, error) {
	buf := make([]byte, engineMaxControl)
	n, err := p.RecvTag(tag, buf).Wait(ctx)
	if err == nil {
		err = p.SendTag(engineTaken, nil).Wait(ctx)
	}
	return buf[:n], err
}

// enginePoint measures one size; rank 0 gets the result of all pairs.
func enginePoint(ctx context.Context, eng *rma.Engine, p *Plan, size int, sp cpu.Spinner, rec *recorder, res *Result) (err error) {
	win, err := eng.Window(ctx, offIn+2*engineSpan(size))
	if err != nil {
		return err
	}
	defer func() {
		if err == nil { // after an error others may never reach Free
			err = win.Free(ctx)
		}
	}()
	offheap.Touch(win.Bytes()) // a page's first use would be measured
	s := newEngineSide(eng, p, size, win, sp)
	res.Fabric = links.Kind(s.peer.Link())
	if p.Test != Lat {
		res.Window = s.window
	}
	play, parts := s.game(p)
	if !s.origin {
		return s.serve(ctx, play)
	}
	msgs, took, err := s.measure(ctx, p, play, rec)
	if err != nil {
		return err
	}
	res.LatUS = rec.latency(parts)
	res.fill(msgs, took)
	if s.cpu >= 0 {
		res.CPUNS = float64(s.cpu) / (float64(msgs) * parts)
	}
	return engineCollect(ctx, eng, res)
}

// engineSpan is the length of each of the two areas of a window.
func engineSpan(size int) int { return (size + 4095) &^ 4095 }

func newEngineSide(eng *rma.Engine, p *Plan, size int, win *rma.Window, sp cpu.Spinner) *engineSide {
	pairs := eng.Size() / 2
	s := &engineSide{
		eng: eng, win: win, other: (eng.Rank() + pairs) % eng.Size(), origin: eng.Rank() < pairs, size: size, span: engineSpan(size),
		stall: ticksOf(p.Stall), w: sp, buf: make([]byte, 8),
		window: max(min(p.Window, engineWindowBytes/size), 2),
	}
	if s.batch = min(p.Batch, s.window); s.batch > 1 && p.Op == Send && p.Test != Lat {
		s.window -= s.window % s.batch
	} else {
		s.batch = 1
	}
	s.peer = eng.Peer(s.other)
	s.reqs, s.recvs = make([]rma.Request, s.window), make([]rma.RecvRequest, s.window)
	return s
}

// engineWindowBytes bounds the bytes of a stream in flight.
const engineWindowBytes = 64 << 20

// game returns the operation of a plan; a latency is a sample divided by parts.
func (s *engineSide) game(p *Plan) (play func(ctx context.Context, n int64, rec *recorder) error, parts float64) {
	switch {
	case p.Op == Put && p.Test == Lat:
		return s.putPing, 2
	case p.Op == Put:
		return s.putStream, 1
	case p.Test == Lat:
		return s.sendPing, 2
	}
	return s.sendStream, 1
}

// measure is the origin's part: phases of doubling length for warm-up, then, after a
// barrier of all pairs, one that lasts as long as the plan says.
func (s *engineSide) measure(ctx context.Context, p *Plan, play func(context.Context, int64, *recorder) error, rec *recorder) (n int64, took time.Duration, err error) {
	warm := max(min(p.Time/5, 200*time.Millisecond), time.Millisecond)
	whole := func(n int64) int64 { return (n + int64(s.batch) - 1) / int64(s.batch) * int64(s.batch) }
	n = whole(max(2, min(p.Iters, 10)))
	for took < warm {
		if took, err = s.phase(ctx, n, play, nil); err != nil {
			return 0, 0, err
		}
		n *= 2
	}
	n = whole(max(p.Iters, int64(float64(n/2)*float64(p.Time)/float64(took))))
	if err := s.tell(ctx, engineAsk, engineMeet); err != nil {
		return 0, 0, err
	}
	if err := s.eng.Barrier(ctx); err != nil {
		return 0, 0, err
	}
	rec.reset()
	took, err = s.phase(ctx, n, play, rec)
	if err != nil {
		return 0, 0, err
	}
	return n, took, s.tell(ctx, engineAsk, 0)
}

// phase runs n operations. Its time ends with the target's answer that all data has
// arrived.
func (s *engineSide) phase(ctx context.Context, n int64, play func(context.Context, int64, *recorder) error, rec *recorder) (time.Duration, error) {
	if err := s.tell(ctx, engineAsk, n); err != nil {
		return 0, err
	}
	if _, err := s.hear(ctx, engineAnswer); err != nil { // the target is ready
		return 0, err
	}
	used := s.meter()
	start := cpu.Ticks()
	err := play(ctx, n, rec)
	var theirs int64
	if err == nil {
		theirs, err = s.hear(ctx, engineAnswer)
	}
	took := cpu.Duration(cpu.Ticks() - start)
	if s.cpu = used(); s.cpu >= 0 && theirs >= 0 {
		s.cpu += time.Duration(theirs)
	} else {
		s.cpu = -1
	}
	return took, err
}

// meter starts to measure the processor time of this process. The returned function
// returns the time used since, negative if it is not known.
func (s *engineSide) meter() func() time.Duration {
	begun, err := ProcessTime(os.Getpid())
	return func() time.Duration {
		now, err2 := ProcessTime(os.Getpid())
		if err != nil || err2 != nil {
			return -1
		}
		return now - begun
	}
}

// serve is the target's part.
func (s *engineSide) serve(ctx context.Context, play func(context.Context, int64, *recorder) error) error {
	for {
		n, err := s.hear(ctx, engineAsk)
		switch {
		case err != nil || n == 0:
			return err
		case n == engineMeet:
			if err := s.eng.Barrier(ctx); err != nil {
				return err
			}
			continue
		}
		used := s.meter()
		if err = s.tell(ctx, engineAnswer, n); err == nil {
			err = play(ctx, n, nil)
		}
		if err == nil {
			err = s.tell(ctx, engineAnswer, int64(used()))
		}
		if err != nil {
			return err
		}
	}
}

func (s *engineSide) tell(ctx context.Context, tag uint32, n int64) error {
	binary.LittleEndian.PutUint64(s.buf, uint64(n))
	return s.peer.SendTag(tag, s.buf).Wait(ctx)
}

func (s *engineSide) hear(ctx context.Context, tag uint32) (int64, error) {
	n, err := s.peer.RecvTag(tag, s.buf).Wait(ctx)
	if err == nil && n != len(s.buf) {
		err = fmt.Errorf("%w: control message of %d bytes", ErrValidate, n)
	}
	return int64(binary.LittleEndian.Uint64(s.buf)), err
}

// together returns the result of all pairs. That of a stream is the sum of their messages over
// the time of the slowest pair, because a pair that ends early leaves its processors to the
// others.
func together(all []Result) Result {
	res := all[0]
	res.OfPairs(all)
	if res.Test == Lat {
		return res
	}
	res.Iters, res.Seconds = 0, 0
	for i := range all {
		res.Iters += all[i].Iters
		res.Seconds = max(res.Seconds, all[i].Seconds)
	}
	res.fill(res.Iters, time.Duration(res.Seconds*float64(time.Second)))
	return res
}

// engineCollect combines the results of all origins on rank 0.
func engineCollect(ctx context.Context, eng *rma.Engine, res *Result) error {
	if eng.Rank() != 0 {
		b, err := json.Marshal(res)
		if err == nil {
			err = engineGive(ctx, eng.Peer(0), engineResult, b)
		}
		return err
	}
	all := []Result{*res}
	for r := 1; r < eng.Size()/2; r++ {
		var x Result
		b, err := engineTake(ctx, eng.Peer(r), engineResult)
		if err == nil {
			err = json.Unmarshal(b, &x)
		}
		if err != nil {
			return err
		}
		all = append(all, x)
	}
	*res = together(all)
	return nil
}
