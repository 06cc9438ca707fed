package nas

// Random is a state of the benchmarks' generator, x ← 5¹³·x mod 2⁴⁶.
type Random uint64

// Seed starts the random numbers of all benchmarks but EP.
const Seed Random = 314159265

const (
	multiplier = 1220703125 // 5¹³
	modulus    = 1 << 46
)

// Next returns the next number, between 0 and 1. The product overflows, but its low 46
// bits, all that is kept, are correct.
func (r *Random) Next() float64 {
	*r = *r * multiplier % modulus
	return float64(*r) * (1.0 / modulus)
}

// Skip returns the state after n calls of Next.
func (r Random) Skip(n int64) Random {
	for a := Random(multiplier); n > 0; n >>= 1 {
		if n&1 != 0 {
			r = r * a % modulus
		}
		a = a * a % modulus
	}
	return r
}
