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

// Session measures one connected endpoint together with the session at the other end. It
// owns the link during Run. Not for concurrent use.
type Session struct {
	p    poller.Poller
	opt  Options
	caps fabric.Caps
	reg  fabric.Region // for balls and messages
	mem  []byte
	data fabric.Region // for measurements; nil until one is made

	mine, peer Setup
	connected  bool
	peerData   fabric.RemoteKey
	max        int           // the agreed largest size
	budget     time.Duration // agreed
	saved      *Profile      // valid for this link, nil if none
	why        error         // why saved is nil

	ran   bool
	posts int   // number of requests
	bytes int64 // that measurements have moved

	ping     [1]fabric.WR
	ball     uint64
	sent     uint32 // number of messages sent
	listened uint32
}

// Open prepares a session over endpoint ep of link l: it looks up the profile and registers
// a little memory. The endpoint may be connected before or after; the caller keeps both.
func Open(l fabric.Link, ep fabric.Endpoint, o Options) (*Session, error) {
	o, err := o.withDefaults(l)
	if err != nil {
		return nil, err
	}
	s := &Session{opt: o, caps: l.Caps()}
	s.p = poller.Poller{
		Link: l, EP: ep, ID: o.EP, Other: o.Other, Pause: o.pause, Spin: cpu.Spinner{Locked: o.Locked, Apart: true},
		PollEach: s.caps.TargetProgress || o.pause != nil, Expired: func(time.Duration) error { return ErrTimeout },
	}
	if o.Background && s.caps.WakesOnWrite {
		s.p.NapAfter, s.p.NapTime = backgroundSpin, napTime
	}
	s.mine = Setup{First: o.First, Mode: o.Mode, MaxSize: o.MaxSize, Budget: o.Budget}
	if o.Mode == Cached && o.Store != nil {
		if s.saved, s.why = o.Store.Load(o.Key, s.caps); s.why == nil {
			s.mine.Digest = s.saved.digest
		}
	}
	if s.reg, err = l.Alloc(regionSize, fabric.AccessAll); err != nil {
		return nil, fmt.Errorf("sampling: memory for measurements: %w", err)
	}
	s.mem = s.reg.Bytes()
	s.mine.Region = s.reg.Key()
	return s, nil
}

// Setup returns the data that the peer's Connect needs, to be sent out of band.
func (s *Session) Setup() Setup { return s.mine }

// Connect accepts the peer's set-up. It only checks it and sends nothing.
func (s *Session) Connect(peer Setup) error {
	if s.connected || s.reg == nil {
		return fmt.Errorf("connect: %w", ErrState)
	}
	if _, _, err := ParseSetup(peer.Append(nil)); err != nil {
		return err
	}
	if peer.First == s.mine.First {
		return fmt.Errorf("%w: exactly one side must be the first", ErrSetup)
	}
	s.peer, s.connected = peer, true
	s.max = min(s.mine.MaxSize, peer.MaxSize)
	s.budget = min(s.mine.Budget, peer.Budget)
	s.ping[0] = s.write(offOutPing, 8, offPing)
	return nil
}

// mode returns the mode that both sides use.
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

// Run returns this side's tables, equal to the peer's: both must call it. It returns when
// both sides have them; after an error the peer's outcome is unknown. ctx cancels it; in
// addition every wait has a deadline. Call it once per session.
func (s *Session) Run(ctx context.Context) (Result, error) {
	if !s.connected || s.ran || s.reg == nil {
		return Result{}, fmt.Errorf("sampling: %w", ErrState)
	}
	s.ran, s.p.Ctx = true, ctx
	if s.mode() == Off {
		return Result{Tables: same(Defaults(s.p.Link.Name())), Source: FromDefaults, first: s.opt.First}, nil
	}
	// A short run with a plausible profile must not pay for the calibration of the cycle
	// counter.
	if s.p.Now = s.opt.clock; s.p.Now == nil {
		t0 := time.Now()
		s.p.Now = func() int64 { return int64(time.Since(t0)) }
	}
	r, err := s.run()
	if err != nil {
		return Result{}, fmt.Errorf("sampling over %s: %w", s.p.Link.Name(), err)
	}
	r.Budget, r.Posts, r.Bytes = s.budget, s.posts, s.bytes
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
	var a, b *Half // of the first side and of the second
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

// Save saves r, the result of this session's Run, for later starts, if there is a store and
// r is not from it. Errors are ErrUnsure and the system's.
func (s *Session) Save(r Result) error {
	switch {
	case s.opt.Store == nil || r.Source != FromMeasurement:
		return nil
	case !r.Known(s.opt.Key.Class):
		return ErrUnsure
	}
	return s.opt.Store.Save(NewProfile(s.opt.Key, s.caps, r))
}

// prepare allocates the memory for measurements, touches it, and exchanges keys.
func (s *Session) prepare() (err error) {
	if s.data, err = s.p.Link.Alloc(dataSize(s.max), fabric.AccessAll); err != nil {
		return s.giveUp(fmt.Errorf("memory for measurements: %w", err))
	}
	offheap.Touch(s.data.Bytes()) // the first access is not part of the link's time
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

// await serves until the peer has sent its half.
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

// giveUp sends the error to the peer, if possible.
func (s *Session) giveUp(err error) error {
	if s.p.Broken == nil && s.p.Ctx.Err() == nil && !errors.Is(err, ErrTimeout) {
		_ = s.lastWord(message{Error: err.Error()}) // the peer may be gone as well; err is the reason
	}
	return err
}

// part ends the session so that neither side leaves while the other still needs its polls:
// the second has sent the last message, and the first confirms its receipt.
func (s *Session) part() error {
	if s.opt.First {
		err := s.lastWord(message{})
		if s.p.Broken != nil {
			return nil //nolint:nilerr // the peer has received it and may be gone by now
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

// Close deregisters the memory. If Run failed, close the endpoint first: the peer's
// requests and this side's may still use the memory. Idempotent.
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
