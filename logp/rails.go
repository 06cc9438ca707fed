package logp

import "math"

// Rail is what a transfer costs on one of several connections to a peer.
type Rail struct {
	Busy    float64 // ns until what is in flight on it has ended
	Latency float64 // ns of a transfer beyond PerByte
	PerByte float64 // ns
}

const (
	// CutAlign is the unit of the division, in bytes: no piece is shorter.
	CutAlign = 4 << 10

	// CutMargin is the least predicted gain for which a transfer is divided, as a share of the
	// time on the first rail.
	CutMargin = 1.0 / 32
)

// end returns the time at which n more bytes have arrived.
func (r *Rail) end(n float64) float64 { return r.Busy + r.Latency + r.PerByte*n }

// Cut divides a transfer of n bytes over rails such that all pieces are predicted to end at
// the same time. Pieces are multiples of align, except for the last one, and lie in the
// order of the rails; a rail whose piece would be shorter than align gets none. It stores
// the lengths to out and returns the predicted end, in ns.
//
// A transfer is not divided unless that saves more than cost ns: alone is the predicted end
// on the first rail, which carries the transfer otherwise, and then gets all of it. Cut does
// not allocate.
func Cut(rails []Rail, n, align int64, cost, alone float64, out []int64) (end float64) {
	used := uint(1)<<len(rails) - 1
	for used != 0 {
		end = equalEnd(rails, used, float64(n))
		least, at := float64(align), -1
		for i := range rails {
			if used>>i&1 == 0 {
				continue
			}
			if b := (end - rails[i].Busy - rails[i].Latency) / rails[i].PerByte; b < least {
				least, at = b, i
			}
		}
		if at < 0 {
			break
		}
		used &^= 1 << at
	}
	left, last := n, 0
	for i := range rails {
		out[i] = 0
		if used>>i&1 == 0 {
			continue
		}
		b := int64((end - rails[i].Busy - rails[i].Latency) / rails[i].PerByte)
		out[i] = min(b/align*align, left)
		left -= out[i]
		last = i
	}
	out[last] += left // of rounding
	end = 0
	for i := range rails {
		if out[i] > 0 {
			end = max(end, rails[i].end(float64(out[i])))
		}
	}
	if used == 0 || !(end+cost < alone) {
		clear(out[:len(rails)])
		out[0] = n
		return alone
	}
	return end
}

// equalEnd returns the time at which the used rails end if they end n bytes together.
func equalEnd(rails []Rail, used uint, n float64) float64 {
	speed, head := 0.0, n
	for i := range rails {
		if used>>i&1 != 0 {
			g := 1 / max(rails[i].PerByte, math.SmallestNonzeroFloat32)
			speed += g
			head += g * (rails[i].Busy + rails[i].Latency)
		}
	}
	return head / speed
}
