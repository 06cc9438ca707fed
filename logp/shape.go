package logp

import "math"

// A shape is the set of inputs of a plan: messages, limits, waits. Plans are cached by
// shape. The hash only finds the cache entry, which is used if it is equal word for word.

// hash mixes the messages of a batch in four independent chains, so that the latency of the
// multiplier is paid once for four.
func hash(ms []Message) uint64 {
	const k = 0x9e3779b97f4a7c15
	h0, h1, h2, h3 := uint64(len(ms)+1)*0xd6e8feb86659fd93, uint64(1), uint64(2), uint64(3)
	for len(ms) >= 4 {
		m := (*[4]Message)(ms)
		h0 = (h0 ^ word(&m[0])) * k
		h1 = (h1 ^ word(&m[1])) * k
		h2 = (h2 ^ word(&m[2])) * k
		h3 = (h3 ^ word(&m[3])) * k
		h0 ^= h0 >> 29
		h1 ^= h1 >> 29
		h2 ^= h2 >> 29
		h3 ^= h3 >> 29
		ms = ms[4:]
	}
	for i := range ms {
		h0 = (h0 ^ word(&ms[i])) * k
		h0 ^= h0 >> 29
	}
	h := ((h0*k^h1)*k^h2)*k ^ h3
	h *= k
	return h ^ h>>32
}

func word(m *Message) uint64 { return uint64(m.Size) ^ uint64(m.Flags)<<56 }

// same compares messages, a cache line in one comparison.
func same(a, b []Message) bool {
	if len(a) != len(b) {
		return false
	}
	for len(a) >= 16 {
		if *(*[16]Message)(a) != *(*[16]Message)(b) {
			return false
		}
		a, b = a[16:], b[16:]
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// coarse rounds a wait up to two bits after its leading one. Waits are rough expectations
// that change with every batch; with exact ones every shape would be new. The plan is
// computed for the rounded wait, which is at most 25 % longer.
func coarse(ns float64) float64 {
	if !(ns > 1) { // less than 1 ns, or NaN: left to Validate
		if ns > 0 {
			return 1
		}
		return ns
	}
	const drop = 52 - 2
	u := math.Float64bits(ns)
	return math.Float64frombits((u + (1<<drop - 1)) &^ (1<<drop - 1))
}
