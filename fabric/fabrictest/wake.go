package fabrictest

import (
	"fmt"
	"time"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/testutil"
)

var wakeCases = []Case{
	{"SleepIsQuiet", sleepIsQuiet},
	{"WakeOnNotify", wakeOnNotify},
	{"WakeOnWrite", func(r *rig) { wakeOnWrite(r, 0) }},
	{"WakeOnQuietWrite", func(r *rig) { wakeOnWrite(r, fabric.FlagQuiet) }},
	{"WakeOnCompletion", wakeOnCompletion},
	{"WakeOnDown", wakeOnDown},
	{"ServedIsCounted", servedIsCounted},
}

// sleepUntil waits for cond as a progress engine does: poll, arm, check again, sleep. A
// sleep that lasts until the deadline is a lost wake-up. Only the owner of s calls it. It
// yields lag times before arming to let events come in between.
func (s *side) sleepUntil(what string, lag int, cond func() bool) error {
	end := time.Now().Add(s.r.f.Deadline)
	for n := 0; ; n++ {
		for s.poll() > 0 {
		}
		if cond() {
			return nil
		}
		for range lag {
			cpu.Yield()
		}
		ok, err := s.link.Arm()
		if err != nil {
			return fmt.Errorf("arm: %w", err)
		}
		if ok && !cond() {
			s.sleeps.Add(1)
			woken, err := readable(s.link.FD(), time.Until(end))
			if err != nil {
				return fmt.Errorf("poll(2) on FD: %w", err)
			}
			if !woken {
				return fmt.Errorf("side %s: %s: slept for %v and was not woken (condition now: %v)", s.name, what, s.r.f.Deadline, cond())
			}
		}
		if ok || n%2 == 0 { // after a refusal it is optional
			s.link.Disarm()
		}
		if time.Now().After(end) {
			return fmt.Errorf("side %s: %s: not within %v", s.name, what, s.r.f.Deadline)
		}
		if !ok {
			cpu.Yield()
		}
	}
}

// sleepIsQuiet: without events, FD is not readable, at least after a few rounds, and stays
// the same descriptor.
func sleepIsQuiet(r *rig) {
	ca, _ := r.pair(fabric.EndpointOptions{})
	local, remote := r.a.region(64, fabric.AccessAll), r.b.region(64, fabric.AccessAll)
	for range 3 {
		ca.ok(req(fabric.OpWrite, local, 0, 64, remote, 0))
		for _, s := range []*side{r.a, r.b} {
			fd := s.link.FD()
			quiet := false
			end := time.Now().Add(s.r.f.Deadline)
			for !quiet && time.Now().Before(end) {
				r.a.poll()
				r.b.poll()
				ok, err := s.link.Arm()
				r.must(err, "arm")
				if ok {
					woken, err := readable(fd, 0)
					r.must(err, "poll(2)")
					quiet = !woken
				}
				s.link.Disarm()
				if s.link.FD() != fd {
					r.Fatalf("FD changed from %d to %d", fd, s.link.FD())
				}
			}
			if !quiet {
				r.Fatalf("side %s: nothing happens, yet for %v Arm refuses or FD stays readable", s.name, r.f.Deadline)
			}
		}
	}
	r.none()
}

// servedIsCounted: on links that can tell (fabric.Serving), a poll that changes memory for a
// peer is seen in Served although it reports nothing, and an idle link's Served rests.
func servedIsCounted(r *rig) {
	ca, _ := r.pair(fabric.EndpointOptions{})
	local, remote := r.a.registered(64, fabric.AccessAll), r.b.registered(64, fabric.AccessAll)
	s, ok := r.b.link.(fabric.Serving)
	if !ok {
		return
	}
	for i := range byte(r.times(40)) {
		local.Bytes()[0] = i + 1
		if err := ca.postOwn(req(fabric.OpWrite, local, 0, 64, remote, 0)); err != nil {
			r.Fatal(err)
		}
		r.until("write", func() bool {
			had, was := remote.Bytes()[0], s.Served()
			r.b.poll()
			if remote.Bytes()[0] != had && s.Served() == was {
				r.Fatalf("a poll executed a write, and Served stays %d", was)
			}
			return remote.Bytes()[0] == i+1
		})
	}
	ca.ok(req(fabric.OpWrite, local, 0, 64, remote, 0)) // everything before is complete
	r.none()
	r.until("the counter of an idle link rests", func() bool { // a connection made again counts as well
		was := s.Served()
		for range 100 {
			r.b.poll()
		}
		return s.Served() == was
	})
}

// lagOf returns a varying lag for sleepUntil.
func lagOf(i int) int { return []int{0, 0, 1, 0, 3}[i%5] }

// lastTurn marks the end of the turns, sent by the side that begins them.
const lastTurn = 1 << 30

// wakeOnNotify: both sides sleep between turns; no notification of many is lost.
func wakeOnNotify(r *rig) {
	ca, cb := r.pair(fabric.EndpointOptions{})
	p := newPhase(r.times(4000))
	turn := func(s *side, c *conn, first bool, local, remote fabric.Region) func() error {
		send := func(i int) error {
			w := req(fabric.OpWrite, local, 0, 8, remote, 8)
			w.Flags, w.Imm = fabric.FlagNotify|fabric.FlagInline, uint32(i)
			return c.postOwn(w)
		}
		return func() error {
			for i := 0; ; i++ {
				if first {
					if !p.more(i) {
						return send(lastTurn)
					}
					if err := send(i); err != nil {
						return err
					}
				}
				if err := s.sleepUntil(fmt.Sprintf("notification %d", i), lagOf(i), func() bool { return len(s.done) > 0 }); err != nil {
					return err
				}
				d := s.done[0]
				last := !first && d.Imm == lastTurn
				if len(s.done) != 1 || d.Op != fabric.OpNotify || d.Imm != uint32(i) && !last {
					return fmt.Errorf("turn %d: %+v", i, s.done)
				}
				s.done = s.done[:0]
				if last {
					return nil
				}
				if !first {
					if err := send(i); err != nil {
						return err
					}
				}
			}
		}
	}
	wa, wb := r.a.region(64, fabric.AccessAll), r.b.region(64, fabric.AccessAll)
	finish := r.lastOut()
	r.both(finish(r.a, turn(r.a, ca, true, wa, wb)), finish(r.b, turn(r.b, cb, false, wb, wa)))
	r.idle()
}

// wakeOnWrite: the same with plain writes, if the link promises it. With FlagQuiet both sides often
// sleep without watching before they do: no write of the moments between is lost.
func wakeOnWrite(r *rig, quiet fabric.Flags) {
	if !r.a.caps.WakesOnWrite || !r.b.caps.WakesOnWrite {
		r.Skip("Caps.WakesOnWrite is not promised by this link")
	}
	ca, cb := r.pair(fabric.EndpointOptions{})
	p := newPhase(r.times(4000))
	turn := func(s *side, c *conn, first bool, local, remote fabric.Region) func() error {
		send := func(i int) error {
			testutil.Store64(local.Bytes(), uint64(i+1))
			w := req(fabric.OpWrite, local, 0, 8, remote, 8)
			w.Flags = fabric.FlagInline | quiet
			return c.postOwn(w)
		}
		doze := func(i int) error {
			l, ok := s.link.(fabric.Watching)
			if !ok || quiet == 0 || i%3 == 0 {
				return nil
			}
			l.Watch(false)
			_, err := s.link.Arm()
			for range lagOf(i) {
				cpu.Yield()
			}
			s.link.Disarm()
			l.Watch(true)
			return err
		}
		return func() error {
			for i := 0; ; i++ {
				if first {
					if !p.more(i) {
						return send(lastTurn)
					}
					if err := send(i); err != nil {
						return err
					}
				}
				if err := doze(i); err != nil {
					return err
				}
				last := false
				if err := s.sleepUntil(fmt.Sprintf("word %d", i), lagOf(i), func() bool {
					word := testutil.Load64(local.Bytes()[8:])
					last = !first && word == lastTurn+1
					return last || word == uint64(i+1)
				}); err != nil || last {
					return err
				}
				if !first {
					if err := send(i); err != nil {
						return err
					}
				}
			}
		}
	}
	wa, wb := r.a.region(64, fabric.AccessAll), r.b.region(64, fabric.AccessAll)
	finish := r.lastOut()
	r.both(finish(r.a, turn(r.a, ca, true, wa, wb)), finish(r.b, turn(r.b, cb, false, wb, wa)))
	r.idle()
}

// wakeOnCompletion: the initiator sleeps until its request is complete; the target sleeps
// all the time and serves it nevertheless.
func wakeOnCompletion(r *rig) {
	ca, cb := r.pair(fabric.EndpointOptions{})
	local, remote := r.a.region(1<<16, fabric.AccessAll), r.b.region(1<<16, fabric.AccessAll)
	p := newPhase(r.times(2000))
	finish := r.lastOut()
	r.both(finish(r.a, func() error {
		for i := 0; p.more(i); i++ {
			op := []fabric.Op{fabric.OpWrite, fabric.OpRead, fabric.OpFetchAdd}[i%3]
			n := 8
			if op != fabric.OpFetchAdd {
				n = 1 << (i % 17)
			}
			w := req(op, local, 0, n, remote, 0)
			w.Flags, w.ID = fabric.FlagSignaled, uint64(i)
			if err := ca.postOwn(w); err != nil {
				return err
			}
			if err := r.a.sleepUntil(fmt.Sprintf("completion %d", i), lagOf(i), func() bool { return len(r.a.done) > 0 }); err != nil {
				return err
			}
			if d := r.a.done[0]; len(r.a.done) != 1 || d.ID != uint64(i) || d.Status != fabric.StatusOK {
				return fmt.Errorf("turn %d: %+v", i, r.a.done)
			}
			r.a.done = r.a.done[:0]
		}
		w := req(fabric.OpWrite, local, 0, 0, remote, 0)
		w.Flags = fabric.FlagNotify
		return ca.postOwn(w)
	}), finish(r.b, func() error {
		err := r.b.sleepUntil("the last request", 0, func() bool { return len(r.b.done) > 0 })
		if err == nil && (len(r.b.done) != 1 || r.b.done[0].Op != fabric.OpNotify || r.b.done[0].EP != cb.id) {
			err = fmt.Errorf("target: %+v", r.b.done)
		}
		r.b.done = r.b.done[:0]
		return err
	}))
	r.idle()
}

// wakeOnDown: a sleeper is woken when its peer is gone.
func wakeOnDown(r *rig) {
	turns := r.times(50)
	if !r.f.IdleDown {
		turns = 3 // each costs a PeerTimeout
	}
	for i := range turns {
		ca, cb := r.pair(fabric.EndpointOptions{PeerTimeout: r.f.PeerTimeout})
		if !r.f.IdleDown {
			// Only a request detects it.
			local, remote := r.a.region(64, fabric.AccessAll), r.b.region(64, fabric.AccessAll)
			r.must(cb.ep.Close(), "close")
			w := req(fabric.OpWrite, local, 0, 8, remote, 0)
			w.ID = r.id()
			if _, err := ca.ep.Post([]fabric.WR{w}); err != nil {
				r.Fatalf("post: %v", err)
			}
		}
		slept := r.a.sleeps.Load()
		finish := r.lastOut()
		r.both(finish(r.a, func() error {
			err := r.a.sleepUntil("OpDown", lagOf(i), func() bool {
				return len(r.a.done) > 0 && r.a.done[len(r.a.done)-1].Op == fabric.OpDown
			})
			r.a.done = r.a.done[:0]
			return err
		}), finish(r.b, func() error {
			if i%2 == 0 { // it sleeps already, or is about to
				if err := r.b.pollUntil("the other side to sleep", func() bool { return r.a.sleeps.Load() > slept }); err != nil {
					return err
				}
			}
			return cb.ep.Close()
		}))
		r.must(ca.ep.Close(), "close")
		for range 10 {
			r.a.poll()
			r.b.poll()
		}
		r.none()
	}
}
