package sampling

import (
	"fmt"
	"math"
)

// Limits of a plausible profile. A busy host may take several times as long as the profile
// predicts, and a measurement at that time would replace good figures by bad ones. A
// different link differs in both probes, by more than these limits.
const (
	farOff    = 5.0
	slackNS   = 500.0 // clock, first touch, a cache miss or two
	recheckN  = 5
	recheckSz = 4 << 10
)

// recheck checks whether the saved tables still describe the link. The first side probes
// the round trip and writes of 4 KiB, and its verdict counts for both.
func (s *Session) recheck() (bool, error) {
	if !s.opt.First {
		m, err := s.serve(s.budget)
		if err != nil {
			return false, err
		}
		if m.Verdict != keep && m.Verdict != measure {
			return false, fmt.Errorf("%w: verdict %q", ErrProtocol, m.Verdict)
		}
		return m.Verdict == keep, nil
	}
	ok, err := s.plausible()
	if err != nil {
		return false, s.giveUp(err)
	}
	v := measure
	if ok {
		v = keep
	}
	return ok, s.tell(message{Verdict: v})
}

// plausible probes the link. The smallest of several times counts, because it is the least
// disturbed one.
func (s *Session) plausible() (bool, error) {
	p := &s.saved.Tables.Forward
	q := &s.saved.Tables.Backward
	if err := s.throw(); err != nil {
		return false, err
	}
	one, trip := p.CPU.A+p.CPU.B, math.Inf(1)
	for range recheckN {
		a := s.p.Now()
		if err := s.throw(); err != nil {
			return false, err
		}
		trip = min(trip, float64(s.p.Now()-a))
	}
	want := one + p.Os.At(8) + p.Ls + q.CPU.A + q.CPU.B + q.Os.At(8) + q.Ls
	if near(trip, want) {
		return true, nil
	}
	if trip < want {
		return false, nil // load only makes a trip longer
	}
	// Writes go to the peer's mailbox, which it does not read before the next message
	// arrives.
	t := &turn{s: s, out: s.mem[offOutMail : offOutMail+mail], lkey: s.reg.LKey(), to: s.peer.Region}
	t.to.Addr, t.to.Len = t.to.Addr+offMail, mail
	const size = recheckSz
	single, chain := math.Inf(1), math.Inf(1)
	k := t.chainLength(size)
	wrs := t.writes(size, k)
	for range recheckN {
		v, err := t.trip(wrs[k-1:])
		if err != nil {
			return false, err
		}
		single = min(single, v)
		if v, err = t.trip(wrs); err != nil {
			return false, err
		}
		chain = min(chain, v)
	}
	n := float64(k - 1)
	return near(max(0, chain-single), n*(p.CPU.B+p.G+p.Os.At(size))), nil
}

func near(got, want float64) bool {
	return got <= want*farOff+slackNS && got >= want/farOff-slackNS
}
