package sampling

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/offheap"
	"github.com/seed33544411/rma/internal/poller"
)

// Session measures one connected endpoint together with the session at the
// other end. It owns the link while Run runs. Not for concurrent use.
type Session struct {
	p    poller.Poller
	opt  Options
	caps fabric.Caps
	reg  fabric.Region // balls and messages
	mem  []byte
	data fabric.Region // what is measured with; nil until something is

	mine, peer Setup
	connected  bool
	peerData   fabric.RemoteKey
	max        int           // largest size, agreed
	budget     time.Duration // agreed
	saved      *Profile      // valid for this link, nil if none
	why        error         // why saved is nil

	ran   bool
	posts int // requests, all

	ping     [1]fabric.WR
	ball     uint64
	told     uint32 // messages
	listened uint32
}

// Open prepares a session over endpoint ep of link l: it looks the profile up
// and registers a little memory. The endpoint may be connected before or after; both stay
// the caller's.
func Open(l fabric.Link, ep fabric.Endpoint, o Options) (*Session, error) {
	o, err := o.withDefaults(l)
	if err != nil {
		return nil, err
	}
	s := &Session{opt: o, caps: l.Caps()}
	s.p = poller.Poller{
		Link: l, EP: ep, ID: o.EP, Other: o.Other, Pause: o.pause, Spin: cpu.Spinner{Locked: o.Locked},
		PollEach: s.caps.TargetProgress || o.pause != nil, Expired: func(time.Duration) error { return ErrTimeout },
	}
	s.mine = Setup{First: o.First, Mode: o.Mode, MaxSize: o.MaxSize, Budget: o.Budget}
	if o.Mode == Cached && o.Store != nil {
		if s.saved, s.why = o.Store.Load(o.Key, s.caps); s.why == nil {
			s.mine.Digest = s.saved.digest
		}
	}
	if s.reg, err = l.Alloc(regionSize, fabric.AccessAll); err != nil {
		return nil, fmt.Errorf("sampling: memory to measure with: %w", err)
	}
	s.mem = s.reg.Bytes()
	s.mine.Region = s.reg.Key()
	return s, nil
}

// Setup is what the peer's Connect needs, to be carried there by other means.
func (s *Session) Setup() Setup { return s.mine }

// Connect takes the peer's set-up. It only checks: nothing is sent.
func (s *Session) Connect(peer Setup) error {
	if s.connected || s.reg == nil {
		return fmt.Errorf("connect: %w", ErrState)
	}
	if _, _, err := ParseSetup(peer.Append(nil)); err != nil {
		return err
	}
	if peer.First == s.mine.First {
		return fmt.Errorf("%w: both sides, or none, want to be the first", ErrSetup)
	}
	s.peer, s.connected = peer, true
	s.max = min(s.mine.MaxSize, peer.MaxSize)
	s.budget = min(s.mine.Budget, peer.Budget)
	s.ping[0] = s.write(offOutPing, 8, offPing)
	return nil
}

// mode is what both sides do.
func (s *Session) mode() Mode {
	a, b := s.mine.Mode, s.peer.Mode
	switch {
	case a == Off || b == Off:
		return Off
	case a == Force || b == Force:
		return Force
	}
	return Cached
}

// Run brings this side's tables, equal to the peer's: both must call it. It
// returns when both sides have them; after an error nothing is known of the
// peer's outcome. ctx cancels it; every wait has a deadline besides.
// Once a session.
func (s *Session) Run(ctx context.Context) (Result, error) {
	if !s.connected || s.ran || s.reg == nil {
		return Result{}, fmt.Errorf("sampling: %w", ErrState)
	}
	s.ran, s.p.Ctx = true, ctx
	if s.mode() == Off {
		return Result{Tables: same(Defaults(s.p.Link.Name())), Source: FromDefaults, first: s.opt.First}, nil
	}
	// A short run of a plausible profile must not pay for the calibration of the
	// cycle counter.
	if s.p.Now = s.opt.clock; s.p.Now == nil {
		t0 := time.Now()
		s.p.Now = func() int64 { return int64(time.Since(t0)) }
	}
	r, err := s.run()
	if err != nil {
		return Result{}, fmt.Errorf("sampling over %s: %w", s.p.Link.Name(), err)
	}
	r.Budget, r.Posts = s.budget, s.posts
	return r, nil
}

func (s *Session) run() (Result, error) {
	if s.mode() == Cached && s.saved != nil && s.mine.Digest == s.peer.Digest {
		ok, err := s.recheck()
		if err != nil {
			return Result{}, err
		}
		if ok {
			r := Result{Tables: s.saved.Tables, Source: FromProfile, first: s.opt.First, Made: s.saved.Made}
			if s.opt.First {
				_, err = s.serve(0)
			} else {
				err = s.tell(message{})
			}
			if err != nil {
				return Result{}, err
			}
			return r, s.part()
		}
	}
	if s.opt.clock == nil {
		s.p.Now = ticks()
	}
	if err := s.prepare(); err != nil {
		return Result{}, err
	}
	var a, b *Half // the first side's, and the second's
	var made int64
	var err error
	if s.opt.First {
		if a, err = s.turn(); err != nil {
			return Result{}, s.giveUp(err)
		}
		made = time.Now().Unix()
		if err = s.tell(message{Half: a, Made: made}); err == nil {
			b, _, err = s.await()
		}
	} else {
		if a, made, err = s.await(); err != nil {
			return Result{}, err
		}
		if b, err = s.turn(); err != nil {
			return Result{}, s.giveUp(err)
		}
		err = s.tell(message{Half: b})
	}
	if err != nil {
		return Result{}, err
	}
	t, err := merge(a, b)
	if err != nil {
		return Result{}, fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	r := Result{Tables: t, Source: FromMeasurement, first: s.opt.First, Made: time.Unix(made, 0).UTC(), Halves: [2]*Half{a, b}}
	if err := s.part(); err != nil {
		return Result{}, err
	}
	if !s.opt.Later {
		r.SaveErr = s.Save(r)
	}
	return r, nil
}

// Save keeps r, of this session's Run, for later starts, where there is a store;
// nothing that came from there. Errors are ErrUnsure and the system's.
func (s *Session) Save(r Result) error {
	switch {
	case s.opt.Store == nil || r.Source != FromMeasurement:
		return nil
	case !r.known():
		return ErrUnsure
	}
	return s.opt.Store.Save(NewProfile(s.opt.Key, s.caps, r))
}

// prepare makes the memory to measure with, touches it, and exchanges keys.
func (s *Session) prepare() (err error) {
	if s.data, err = s.p.Link.Alloc(dataSize(s.max), fabric.AccessAll); err != nil {
		return s.giveUp(fmt.Errorf("memory to measure with: %w", err))
	}
	mem := s.data.Bytes()
	for i := 0; i < len(mem); i += offheap.PageSize {
		mem[i] = 1 // first use is not the link's time
	}
	hello := message{Data: s.data.Key().Append(nil)}
	if !s.opt.First {
		if err := s.tell(hello); err != nil {
			return err
		}
	}
	m, err := s.serve(0)
	if err != nil {
		return err
	}
	if s.peerData, _, err = fabric.ParseRemoteKey(m.Data); err != nil {
		return fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	if k := s.peerData; len(m.Data) != fabric.RemoteKeySize || k.Len != uint64(dataSize(s.max)) || k.Addr == 0 || k.Addr%8 != 0 {
		return fmt.Errorf("%w: memory of %d bytes at %#x, want %d", ErrProtocol, k.Len, k.Addr, dataSize(s.max))
	}
	if s.opt.First {
		return s.tell(hello)
	}
	return nil
}

// await serves until the peer has handed over its half.
func (s *Session) await() (*Half, int64, error) {
	m, err := s.serve(s.budget)
	if err == nil && m.Half == nil {
		err = fmt.Errorf("%w: a message without measurements", ErrProtocol)
	}
	if err != nil {
		return nil, 0, err
	}
	if m.Made < 0 || m.Made > 1<<40 {
		return nil, 0, fmt.Errorf("%w: made at %d", ErrProtocol, m.Made)
	}
	return m.Half, m.Made, nil
}

// giveUp tells the peer why, where it can still be told.
func (s *Session) giveUp(err error) error {
	if s.p.Broken == nil && s.p.Ctx.Err() == nil && !errors.Is(err, ErrTimeout) {
		_ = s.lastWord(message{Error: err.Error()}) // the peer may be gone as well; err is the reason
	}
	return err
}

// part ends the session so that neither side leaves while the other still
// needs its polls: the second has said something last, and the first confirms
// that it has heard.
func (s *Session) part() error {
	if s.opt.First {
		err := s.lastWord(message{})
		if s.p.Broken != nil {
			return nil //nolint:nilerr // the peer that has heard may be gone by now
		}
		return err
	}
	if _, err := s.serve(0); err != nil {
		return err
	}
	if err := s.drain(); err != nil && s.p.Broken == nil {
		return err
	}
	return nil
}

// Close withdraws the memory. Close the endpoint before when Run failed: the
// peer may still be writing, and so may this side's requests. Idempotent.
func (s *Session) Close() error {
	if s.reg == nil {
		return nil
	}
	err := s.reg.Close()
	if s.data != nil {
		err = errors.Join(err, s.data.Close())
	}
	s.reg, s.mem, s.data = nil, nil, nil
	return err
}
