package logp

// A ring holds so much, and what was taken out of it is known to the sender a
// while later only. A batch larger than the ring goes in turns: the sender fills
// the window, waits for credit, goes on. The formulas add up the work of both
// ends, so that a turn costs what they do not hold: the way of the credit and that
// of what is sent thereafter, in so far as the receiver has run out of work
// meanwhile.
//
// With operations of k bytes of ring each, the largest counting, the window is w
// = ⌊Ring/k⌋·k, credit comes every e = min(⌈Credit/k⌉·k, w), and of one loop of
// the credit come ⌊w/e⌋·e bytes. In a steady stream a loop takes the round trip
// and the work on e bytes, or the work on all of them, whichever is longer. Thus,
// for B bytes of ring of which each is u of work for the receiver,
//
//	stall = ⌈(B − w) / (⌊w/e⌋·e)⌉ · max(0, trip − (w − e)·u)     B > Ring
//	trip  = (a + b + Os(8) + Ls)  +  (a + Ls)
//	         credit on its way        posted anew, on its way
//
// It never grows with the ring, and u can hide no more of it than it adds to the
// rest: more bytes are never cheaper.

// held is how much of the ring an operation of m bytes takes, whole blocks.
func (l *Limits) held(m int64) int64 {
	if m <= l.EagerBlock {
		return l.EagerBlock
	}
	if l.EagerBlock < 2 {
		return m
	}
	return (m + l.EagerBlock - 1) / l.EagerBlock * l.EagerBlock
}

// flow is what a plan puts through the ring.
type flow struct {
	held    int64   // bytes of ring
	largest int64   // of one operation
	work    float64 // ns of the receiver
}

// put adds an operation of m bytes of ring.
func (f *flow) put(m int64) {
	f.held += m
	f.largest = max(f.largest, m)
}

// creditWord is the size of what returns credit.
const creditWord = 8

// creditTrip is the time from a credit that is due to what it allows to be sent.
func (p *Params) creditTrip() float64 {
	return 2*p.CPU.A + p.CPU.B + p.Os.At(creditWord) + 2*p.Ls
}

// CreditWait returns the expected time in ns until a sender that knows of free
// bytes of free ring has room for need bytes of blocks, or all the room there can
// be: until the receiver has worked off what is missing, and its credit is here.
// It is what Batch.Wait of a mode is meant to be. It does not allocate.
func (p *Params) CreditWait(l *Limits, free, need int64) float64 {
	if need = min(need, l.Ring); free >= need {
		return 0
	}
	block := max(l.EagerBlock, 1)
	blocks := (need - max(free, 0) + block - 1) / block
	return float64(blocks)*(p.Or.At(block)+p.C.At(block)) + p.CPU.A + p.CPU.B + p.Os.At(creditWord) + p.Ls
}

// stall is the time for which the link waits for credit within a plan.
func (l *Limits) stall(trip float64, f *flow) float64 {
	if l.Ring <= 0 || f.held <= l.Ring {
		return 0
	}
	k := max(min(f.largest, l.Ring), 1)
	w := l.Ring / k * k
	e := min((max(l.Credit, 1)+k-1)/k*k, w)
	loop := w / e * e
	turns := (f.held - w + loop - 1) / loop
	return float64(turns) * max(0, trip-float64(w-e)*f.work/float64(f.held))
}
