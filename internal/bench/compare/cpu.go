package compare

// Processor time of peers. Their programs do not report it, and starting, connecting and
// ending cost processor time as well. That cost is the same for two runs of different
// length, so the difference of their times is that of the additional messages, warm-up
// included.

// minGrowth is the least ratio of iterations of the two runs; with less, the difference
// would be that of two starts.
const minGrowth = 2

// cpu returns the processor time of both processes for a message, in ns, from a run of n
// iterations and a short one; 0 if it is not known.
func (p *program) cpu(t Test, short int, pilot Sample, n int, run Sample) float64 {
	used := run.CPU - pilot.CPU
	if n < minGrowth*short || used <= 0 {
		return 0
	}
	messages := p.messages(t, n) - p.messages(t, short)
	return float64(used.Nanoseconds()) / float64(messages)
}

// messages returns the number of messages in a run of n iterations; a round trip has two.
func (p *program) messages(t Test, n int) int {
	if p.WarmUp != nil {
		n += p.WarmUp(t.Kind, n)
	}
	n *= max(p.pairs, 1)
	if t.less() {
		n *= 2
	}
	return n
}

// Warm-ups of programs: aFifth for those that accept a number, aTenth for those in csrc,
// trials for the repetitions of NetPIPE (counted with strace: it plays n round trips three
// times, of which the best counts, after 100 others).
func aFifth(_ Kind, n int) int { return max(n/5, 10) }
func aTenth(_ Kind, n int) int { return n/10 + 1 }
func trials(_ Kind, n int) int { return 2*n + 100 }
