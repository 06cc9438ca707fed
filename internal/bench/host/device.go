package host

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/cpu"
)

// DeviceReport is what CheckDevice found out about an RDMA device.
type DeviceReport struct {
	Choice string      `json:"choice"` // device, port and GID, and why
	Caps   fabric.Caps `json:"caps"`
	Checks []Finding   `json:"checks"`
}

const (
	deviceArea = 64 << 10
	deviceWait = 10 * time.Second // for one request
)

// deviceSide is one of two links of the process on the same device.
type deviceSide struct {
	link fabric.Link
	ep   fabric.Endpoint
	mem  fabric.Region
	got  []fabric.Completion
}

// CheckDevice connects two links that open returns, and checks on them what the engine
// needs of a device. Each failed check names what went wrong; the others still run, on a new
// connection.
func CheckDevice(open func() (link fabric.Link, choice string, err error)) (r DeviceReport) {
	for _, c := range []struct {
		name string
		run  func(a, b *deviceSide) error
	}{
		{"write and read", checkCopies}, {"pieces", checkPieces}, {"inline", checkInline}, {"notification", checkNotify},
		{"atomics", checkAtomics}, {"refusal", checkRefusal},
	} {
		f := ok("passed")
		if err := withSides(open, &r, c.run); err != nil {
			f = bad(Fail, "send this report: see docs/clusters.md", "%v", err)
		}
		f.Check = c.name
		r.Checks = append(r.Checks, f)
	}
	return r
}

func withSides(open func() (fabric.Link, string, error), r *DeviceReport, run func(a, b *deviceSide) error) (err error) {
	var sides [2]deviceSide
	for i := range sides {
		s := &sides[i]
		var choice string
		if s.link, choice, err = open(); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.link.Close()) }()
		r.Choice, r.Caps = choice, s.link.Caps()
		if s.mem, err = s.link.Alloc(deviceArea, fabric.AccessAll); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.mem.Close()) }()
		if s.ep, err = s.link.NewEndpoint(fabric.EndpointOptions{}); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.ep.Close()) }()
	}
	a, b := &sides[0], &sides[1]
	ctx, cancel := context.WithTimeout(context.Background(), deviceWait)
	defer cancel()
	if err := errors.Join(a.ep.Connect(ctx, b.ep.Address()), b.ep.Connect(ctx, a.ep.Address())); err != nil {
		return err
	}
	for i := range a.mem.Bytes() {
		a.mem.Bytes()[i] = byte(i*131 ^ i>>8)
	}
	return run(a, b)
}

// until polls both sides until cond, for at most deviceWait.
func (s *deviceSide) until(b *deviceSide, cond func() bool) error {
	var sp cpu.Spinner
	var cs [16]fabric.Completion
	for end := time.Now().Add(deviceWait); !cond(); sp.Wait() {
		for _, x := range []*deviceSide{s, b} {
			x.got = append(x.got, cs[:x.link.Poll(cs[:])]...)
		}
		if time.Now().After(end) {
			return fmt.Errorf("no completion within %v", deviceWait)
		}
	}
	return nil
}

// do executes one request and returns its status as an error.
func (s *deviceSide) do(b *deviceSide, w fabric.WR) error {
	w.Flags |= fabric.FlagSignaled
	w.RemoteAddr += b.mem.Addr()
	if w.RKey == 0 {
		w.RKey = b.mem.Key().RKey
	}
	s.got = s.got[:0]
	if n, err := s.ep.Post([]fabric.WR{w}); n != 1 {
		return fmt.Errorf("%v of %d bytes is not posted: %w", w.Op, w.Len(), err)
	}
	if err := s.until(b, func() bool { return len(s.got) > 0 }); err != nil {
		return fmt.Errorf("%v of %d bytes: %w", w.Op, w.Len(), err)
	}
	if err := s.got[0].Err(); err != nil {
		return fmt.Errorf("%v of %d bytes: %w", w.Op, w.Len(), err)
	}
	return nil
}

func (s *deviceSide) piece(off, n int) fabric.SGE {
	return fabric.NewSGE(s.mem.Bytes()[off:off+n], s.mem.LKey())
}

func differ(what string, got, want []byte) error {
	for i := range want {
		if got[i] != want[i] {
			return fmt.Errorf("%s: byte %d of %d is %#x, want %#x", what, i, len(want), got[i], want[i])
		}
	}
	return nil
}

func checkCopies(a, b *deviceSide) error {
	for _, n := range []int{1, 8, 255, 4096, 5000, deviceArea / 2} {
		want := a.mem.Bytes()[:n]
		clear(b.mem.Bytes())
		if err := a.do(b, fabric.WR{Op: fabric.OpWrite, Local: []fabric.SGE{a.piece(0, n)}}); err != nil {
			return err
		}
		back := a.piece(deviceArea/2, n)
		if err := errors.Join(differ("written", b.mem.Bytes(), want), a.do(b, fabric.WR{Op: fabric.OpRead, Local: []fabric.SGE{back}})); err != nil {
			return err
		}
		if err := differ("read", a.mem.Bytes()[deviceArea/2:], want); err != nil {
			return err
		}
	}
	return nil
}

func checkPieces(a, b *deviceSide) error {
	var list []fabric.SGE
	var want []byte
	for i := range a.link.Caps().MaxSGE + 3 {
		list = append(list, a.piece(i*100, 17+i))
		want = append(want, a.mem.Bytes()[i*100:][:17+i]...)
	}
	if err := a.do(b, fabric.WR{Op: fabric.OpWrite, Local: list}); err != nil {
		return err
	}
	return differ("gathered", b.mem.Bytes(), want)
}

func checkInline(a, b *deviceSide) error {
	n := a.link.Caps().MaxInline
	if err := a.do(b, fabric.WR{Op: fabric.OpWrite, Local: []fabric.SGE{a.piece(0, n)}, Flags: fabric.FlagInline}); err != nil {
		return err
	}
	return differ("inline", b.mem.Bytes(), a.mem.Bytes()[:n])
}

func checkNotify(a, b *deviceSide) error {
	w := fabric.WR{Op: fabric.OpWrite, Local: []fabric.SGE{a.piece(0, 100)}, Flags: fabric.FlagNotify, Imm: 0x01020304}
	if err := a.do(b, w); err != nil {
		return err
	}
	if err := b.until(a, func() bool { return len(b.got) > 0 }); err != nil {
		return fmt.Errorf("notification: %w", err)
	}
	if c := b.got[0]; c.Op != fabric.OpNotify || c.Imm != w.Imm || c.Bytes != 100 {
		return fmt.Errorf("notification is %v with %#x of %d bytes, want %#x of 100", c.Op, c.Imm, c.Bytes, w.Imm)
	}
	return differ("notified", b.mem.Bytes(), a.mem.Bytes()[:100])
}

func checkAtomics(a, b *deviceSide) error {
	word, old := b.mem.Bytes()[64:72], a.mem.Bytes()[:8]
	binary.NativeEndian.PutUint64(word, 40)
	for _, x := range []struct {
		w         fabric.WR
		old, left uint64
	}{
		{fabric.WR{Op: fabric.OpFetchAdd, Operand: 2}, 40, 42},
		{fabric.WR{Op: fabric.OpCompareSwap, Compare: 42, Operand: 7}, 42, 7},
		{fabric.WR{Op: fabric.OpCompareSwap, Compare: 42, Operand: 9}, 7, 7},
	} {
		x.w.Local, x.w.RemoteAddr = []fabric.SGE{a.piece(0, 8)}, 64
		if err := a.do(b, x.w); err != nil {
			return err
		}
		if got, now := binary.NativeEndian.Uint64(old), binary.NativeEndian.Uint64(word); got != x.old || now != x.left {
			return fmt.Errorf("%v returned %d and left %d, want %d and %d", x.w.Op, got, now, x.old, x.left)
		}
	}
	return nil
}

// checkRefusal: a wrong key is refused, and nothing is written.
func checkRefusal(a, b *deviceSide) error {
	before := bytes.Clone(b.mem.Bytes())
	err := a.do(b, fabric.WR{Op: fabric.OpWrite, Local: []fabric.SGE{a.piece(0, 100)}, RKey: b.mem.Key().RKey ^ 0x5500})
	if !errors.Is(err, fabric.ErrRemoteAccess) {
		return fmt.Errorf("a write with a wrong key ended with %w, want %w", err, fabric.ErrRemoteAccess)
	}
	return differ("after a refused write", b.mem.Bytes(), before)
}
