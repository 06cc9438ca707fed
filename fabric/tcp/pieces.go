//go:build linux || darwin || freebsd

package tcp

import "github.com/seed33544411/rma/fabric"

const (
	// minPieces is the least size of the ring: a few lists of the usual length for each of
	// the default number of requests, in 16 KiB.
	minPieces = 1024

	// maxPieces bounds the pieces of one list. A ring that grows for a longer list does so
	// once and keeps its size.
	maxPieces = 1 << 20
)

// pieces holds the local memory of the requests of this side, in a ring. The cursors count
// modulo 2^32.
type pieces struct {
	ring       []fabric.SGE // length a power of two
	head, tail uint32
}

func (p *pieces) init(depth int) { p.ring = make([]fabric.SGE, pow2(max(minPieces, 4*depth))) }

func (p *pieces) at(i uint32) *fabric.SGE { return &p.ring[i&uint32(len(p.ring)-1)] }

// room reports whether there is room for n pieces. If a list is longer than the whole ring,
// the ring grows when it is empty.
func (p *pieces) room(n int) bool {
	if n <= len(p.ring)-int(p.tail-p.head) {
		return true
	}
	if p.head != p.tail || n <= len(p.ring) {
		return false
	}
	p.ring = make([]fabric.SGE, pow2(n))
	return true
}

// add appends those of local that are not empty and returns their number.
// Hot path.
func (p *pieces) add(local []fabric.SGE) (n uint32) {
	for i := range local {
		if local[i].Len != 0 {
			*p.at(p.tail + n) = local[i]
			n++
		}
	}
	p.tail += n
	return n
}

// forward advances a place, byte off of piece i, by n bytes.
func (p *pieces) forward(i, off, n uint32) (uint32, uint32) {
	for n > 0 {
		m := p.at(i).Len - off
		if n < m {
			return i, off + n
		}
		n -= m
		i++
		off = 0
	}
	return i, off
}

// vec fills v with n bytes from byte off of piece i on, as far as v suffices. It returns
// the numbers of entries of v and of bytes used.
func (p *pieces) vec(v []iovec, i, off uint32, n int) (k, total int) {
	for ; total < n && k < len(v); k++ {
		s := p.at(i)
		m := int(min(s.Len-off, uint32(n-total)))
		v[k] = iovec{uintptr(s.Addr + uint64(off)), uintptr(m)}
		total += m
		i++
		off = 0
	}
	return k, total
}

func pow2(n int) int {
	p := 1
	for p < n {
		p *= 2
	}
	return p
}
