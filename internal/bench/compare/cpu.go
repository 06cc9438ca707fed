package compare

// Processor time of theirs: programs say nothing of it, and starting, connecting and
// ending cost some as well. Two runs of different length cost that alike; the
// difference of their times is that of the messages that one has more than the
// other, warm-up included.

// minGrowth is by what factor the longer run must have more iterations: below it the
// difference would be one of starts.
const minGrowth = 2

// cpu is the processor time of both processes for a message, in ns, from a run of n
// iterations and a short one; 0 if they do not tell.
func (p *program) cpu(t Test, short int, pilot Sample, n int, run Sample) float64 {
	used := run.CPU - pilot.CPU
	if n < minGrowth*short || used <= 0 {
		return 0
	}
	messages := p.messages(t, n) - p.messages(t, short)
	return float64(used.Nanoseconds()) / float64(messages)
}

// messages is how many a run of n iterations sends in all; a round trip has two.
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

// Warm-ups of programs: aFifth is what those are told that can be told, aTenth what
// csrc has, trials what NetPIPE repeats (counted with strace: it plays n round trips
// three times, of which the best counts, after 100 others).
func aFifth(_ Kind, n int) int { return max(n/5, 10) }
func aTenth(_ Kind, n int) int { return n/10 + 1 }
func trials(_ Kind, n int) int { return 2*n + 100 }
