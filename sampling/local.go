package sampling

import (
	"fmt"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/offheap"
)

// local measures figures that do not involve the peer: an idle poll of the receiver,
// copies, and registration.
func (t *turn) local() error {
	if err := t.looks(); err != nil {
		return err
	}
	if err := t.copies(); err != nil {
		return err
	}
	return t.registrations()
}

// atLeast is the least duration of a timed loop, because of the granularity of the clock.
const atLeast = 1500 // ns

// maxLoop bounds a timed loop, even if the clock stands still.
const maxLoop = 4096

// looped returns the time of one call of f, averaged over a loop that lasts long enough, of
// at most limit calls. n keeps their number.
func (t *turn) looped(n *int, limit int, f func()) float64 {
	for {
		a := t.s.p.Now()
		for range *n {
			f()
		}
		if d := t.since(a); d >= atLeast || *n >= limit {
			return d / float64(*n)
		}
		*n *= 4
	}
}

// looks measures the least cost of an arrival at the receiver: one poll of the link without
// a result, and one load of a word that the peer writes.
func (t *turn) looks() error {
	n := 16
	return t.sample(&t.idle, shareLocal, func() (v float64, err error) {
		v = t.looped(&n, maxLoop, func() {
			if _, e := t.s.p.Poll(); e != nil {
				err = e
			}
			_ = loadWord(t.s.mem, offPing)
		})
		return v, err
	})
}

// copies measures C: from one half of the region's data to the other, always the same
// bytes, like a message that was just composed.
func (t *turn) copies() error {
	s := t.s
	for size := 8; size <= s.max; size *= 4 {
		p := &pointSeries{size: size}
		t.copy = append(t.copy, p)
		n := 1
		err := t.sample(&p.t, shareLocal, func() (float64, error) {
			return t.looped(&n, min(maxLoop, 256<<10/size+1), func() { copy(t.out[:size], t.in[:size]) }), nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// registrations measures R: registering memory that is in use, and deregistering it, and by
// how much longer the link takes to read such memory of a peer than memory of its own.
func (t *turn) registrations() error {
	// Above this size registration is linear in the number of pages, and touching more of
	// them first would cost more than the result is worth.
	top := min(t.s.max, 256<<10)
	mem, err := offheap.Alloc(top, offheap.Scratch)
	if err != nil {
		return fmt.Errorf("memory to register: %w", err)
	}
	defer func() { _ = offheap.Free(mem, offheap.Scratch) }() // cannot fail for memory from Alloc
	offheap.Touch(mem)                                        // like memory that contains a message
	private, _ := t.s.p.Link.(fabric.PrivateReader)
	for size := 4 << 10; size <= top; size *= 4 {
		p := &pointSeries{size: size}
		t.reg = append(t.reg, p)
		err := t.sample(&p.t, shareLocal, func() (float64, error) {
			a := t.s.p.Now()
			r, err := t.s.p.Link.Register(mem[:size], fabric.AccessLocalWrite|fabric.AccessRemoteRead)
			if err == nil {
				err = r.Close()
			}
			if err != nil {
				return 0, fmt.Errorf("register %d bytes: %w", size, err)
			}
			took := t.since(a)
			if private != nil {
				took += t.slower(private, mem[:size])
			}
			return took, nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// slower returns by how much longer p takes to read mem, as memory that the link has not
// allocated, than to copy it; 0 if p does not read it so.
func (t *turn) slower(p fabric.PrivateReader, mem []byte) float64 {
	to := t.in[:len(mem)]
	a := t.s.p.Now()
	if !p.ReadPrivate(to, mem) {
		return 0
	}
	read := t.since(a)
	a = t.s.p.Now()
	copy(to, mem)
	return max(0, read-t.since(a))
}
