package rdv

// growth is the superpipeline: while a chunk is under way the next one is being
// prepared, and both should take equally long. A chunk of n bytes needs n/link
// on the wire and n/prepare before; so the next one may be larger by the ratio
// prepare/link. Small at first, because nothing is under way during the first
// preparation; large later, because every chunk costs a control message and a
// read.
type growth struct {
	next  float64
	ratio float64
	most  int
}

const (
	// pageSize rounds chunks, so that sources stay aligned.
	pageSize = 4096

	// mostRatio bounds the growth: beyond it the first chunk would be
	// followed by one that is copied for longer than the link ever waits.
	mostRatio = 8
)

// newGrowth starts with first bytes; no chunk has more than most. Rates are in
// bytes per second, 0 for unknown.
func newGrowth(first, most int, prepare, link float64) growth {
	ratio := 2.0
	if prepare > 0 && link > 0 {
		// Where preparing is the slower, growing would only make the link wait
		// longer for the next chunk.
		ratio = min(max(prepare/link, 1), mostRatio)
	}
	return growth{next: float64(min(first, most)), ratio: ratio, most: most}
}

// take returns the size of the next chunk of left bytes, at least 1. The last
// two become one where that fits: no crumb goes by itself.
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
