package rdv

// growth computes the chunks of the superpipeline: while a chunk is in flight the next one
// is being prepared, and both should take equally long. A chunk of n bytes needs n/prepare
// to prepare and n/link on the wire; so the next one may be larger by the ratio
// prepare/link. The first is small, because nothing is in flight during its preparation;
// later ones are large, because every chunk costs a control message and a read.
type growth struct {
	next  float64
	ratio float64
	most  int
}

const (
	// pageSize is the multiple that chunks are rounded to, so that sources stay aligned.
	pageSize = 4096

	// mostRatio bounds the growth: beyond it the first chunk would be followed by one whose
	// copy takes longer than the link ever waits.
	mostRatio = 8
)

// newGrowth starts with first bytes; no chunk is larger than most. Rates are in bytes per
// second, 0 if unknown.
func newGrowth(first, most int, prepare, link float64) growth {
	ratio := 2.0
	if prepare > 0 && link > 0 {
		// If preparing is slower than the link, growth would only make the link wait longer
		// for the next chunk.
		ratio = min(max(prepare/link, 1), mostRatio)
	}
	return growth{next: float64(min(first, most)), ratio: ratio, most: most}
}

// take returns the size of the next chunk of left bytes, at least 1. The last two chunks
// are joined if they fit one, so that no small remainder is sent alone.
func (g *growth) take(left int) int {
	n := min(int(g.next), g.most)
	if n > pageSize {
		n -= n % pageSize
	}
	if left <= g.most && left < n+n/4 {
		n = left
	}
	g.next = min(g.next*g.ratio, float64(g.most))
	return min(n, left)
}
