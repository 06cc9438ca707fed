package scatter

import (
	"cmp"
	"math"

	"github.com/seed33544411/rma/fabric"
)

// Limits bounds the requests of a plan. Zero means no additional bound.
type Limits struct {
	MaxSGE     int    // local pieces of a request
	MaxMessage uint64 // bytes of a request
	MaxReads   int    // requests in flight
}

// LimitsOf returns the limits of a link. chunk, if not 0, further bounds the bytes of one
// request: other requests can be executed between shorter ones.
func LimitsOf(c fabric.Caps, chunk uint64) Limits {
	l := Limits{MaxSGE: c.MaxSGE, MaxMessage: c.MaxMessage, MaxReads: c.MaxReads}
	if chunk > 0 && (l.MaxMessage == 0 || chunk < l.MaxMessage) {
		l.MaxMessage = chunk
	}
	return l
}

// Plan turns remote regions and local pieces into work requests. Both are streams of bytes,
// joined byte by byte; the plan ends where the shorter ends. The slices belong to the
// caller and must not change while the plan uses them. The methods do not allocate.
type Plan struct {
	lim  Limits
	src  []Region
	dst  []fabric.SGE
	soff uint32 // bytes used of src[0]
	doff uint32 // bytes used of dst[0]
}

// Reset starts a plan over local pieces dst; Feed adds regions.
func (p *Plan) Reset(dst []fabric.SGE, lim Limits) {
	if lim.MaxSGE <= 0 {
		lim.MaxSGE = math.MaxInt
	}
	lim.MaxMessage = cmp.Or(lim.MaxMessage, math.MaxUint64)
	if lim.MaxReads <= 0 {
		lim.MaxReads = math.MaxInt
	}
	*p = Plan{lim: lim, dst: dst}
}

// Feed adds the next remote regions of the stream, less their first skip bytes. Earlier
// regions must be used up.
func (p *Plan) Feed(src []Region, skip uint64) {
	for len(src) > 0 && skip >= uint64(src[0].Len) {
		skip -= uint64(src[0].Len)
		src = src[1:]
	}
	p.src, p.soff = src, uint32(skip)
}

// trim drops used and empty pieces.
func (p *Plan) trim() {
	for len(p.src) > 0 && p.soff == p.src[0].Len {
		p.src, p.soff = p.src[1:], 0
	}
	for len(p.dst) > 0 && p.doff == p.dst[0].Len {
		p.dst, p.doff = p.dst[1:], 0
	}
}

// Done reports whether nothing is left to request.
func (p *Plan) Done() bool {
	p.trim()
	return len(p.src) == 0 || len(p.dst) == 0
}

// Next stores the next requests in wrs and their pieces in sges, and returns their number:
// fewer than len(wrs) if sges or the plan end, or if the busy requests in flight leave no
// room for more. It sets Op, Local, RemoteAddr and RKey, and clears the rest. Every request
// moves at least one byte.
func (p *Plan) Next(op fabric.Op, wrs []fabric.WR, sges []fabric.SGE, busy int) (n int) {
	room := max(min(len(wrs), p.lim.MaxReads-busy), 0)
	for n < room {
		used := p.request(op, &wrs[n], sges)
		if used == 0 {
			break
		}
		sges = sges[used:]
		n++
	}
	return n
}

// request builds one request from the front of sges and returns the number of pieces, 0 if
// there is none.
func (p *Plan) request(op fabric.Op, w *fabric.WR, sges []fabric.SGE) int {
	most := min(len(sges), p.lim.MaxSGE)
	if p.Done() || most == 0 {
		return 0
	}
	first := &p.src[0]
	addr, key := first.Addr+uint64(p.soff), first.RKey
	var bytes uint64
	k := 0 // pieces
	for bytes < p.lim.MaxMessage && !p.Done() {
		s, d := &p.src[0], &p.dst[0]
		if s.RKey != key || s.Addr+uint64(p.soff) != addr+bytes {
			break // another run
		}
		step := uint32(min(uint64(s.Len-p.soff), uint64(d.Len-p.doff), p.lim.MaxMessage-bytes))
		at := d.Addr + uint64(p.doff)
		if last := k - 1; k > 0 && sges[last].LKey == d.LKey && sges[last].Addr+uint64(sges[last].Len) == at && sges[last].Len <= math.MaxUint32-step {
			sges[last].Len += step
		} else {
			if k == most {
				break
			}
			sges[k] = fabric.SGE{Addr: at, Len: step, LKey: d.LKey}
			k++
		}
		p.soff += step
		p.doff += step
		bytes += uint64(step)
	}
	*w = fabric.WR{Op: op, Local: sges[:k:k], RemoteAddr: addr, RKey: key}
	return k
}
