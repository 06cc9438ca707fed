package logp

// A ring has a bounded size, and the sender knows only after a delay what the receiver has
// consumed. A batch larger than the ring is sent in turns: the sender fills the window,
// waits for credit, continues. The formulas add up the work of both ends, so the additional
// cost of a turn is the rest: the latencies of the credit and of the data sent after it, as
// far as the receiver has run out of work meanwhile.
//
// With operations of k bytes of ring each (the largest counts), the window is w =
// ⌊Ring/k⌋·k, credit is returned every e = min(⌈Credit/k⌉·k, w) bytes, and one loop of the
// credit returns ⌊w/e⌋·e bytes. In a steady stream a loop takes the round trip and the work
// on e bytes, or the work on all of them, whichever is longer. Thus, for B bytes of ring
// with u of work for the receiver per byte,
//
//	stall = ⌈(B − w) / (⌊w/e⌋·e)⌉ · max(0, trip − (w − e)·u)     B > Ring
//	trip  = (a + b + Os(8) + Ls)  +  (a + Ls)
//	         credit on its way        posted again, on its way
//
// The stall never grows with the ring, and u can hide no more of it than it adds to the
// other costs: more bytes are never cheaper.

// held returns how much of the ring an operation of m bytes takes, in whole blocks.
func (l *Limits) held(m int64) int64 {
	if m <= l.EagerBlock {
		return l.EagerBlock
	}
	if l.EagerBlock < 2 {
		return m
	}
	return (m + l.EagerBlock - 1) / l.EagerBlock * l.EagerBlock
}

// flow sums the operations of a plan that use the ring.
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

// creditWord is the size of a credit update in bytes.
const creditWord = 8

// CreditTrip returns the time from credit that is due to the arrival of the data that it
// allows to be sent.
func (p *Params) CreditTrip() float64 {
	return 2*p.CPU.A + p.CPU.B + p.Os.At(creditWord) + 2*p.Ls
}

// CreditWait returns the expected time in ns until a sender that knows of free bytes of
// free ring has room for need bytes of blocks, or the whole ring if that is smaller: until
// the receiver has processed the missing amount and its credit has arrived. It is meant for
// Batch.Wait of a mode. It does not allocate.
func (p *Params) CreditWait(l *Limits, free, need int64) float64 {
	if need = min(need, l.Ring); free >= need {
		return 0
	}
	block := max(l.EagerBlock, 1)
	blocks := (need - max(free, 0) + block - 1) / block
	return float64(blocks)*(p.Or.At(block)+p.C.At(block)) + p.CPU.A + p.CPU.B + p.Os.At(creditWord) + p.Ls
}

// stall returns the time for which the link waits for credit within a plan.
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

// Flight returns the bytes that a link transfers, in large operations, in the time from credit
// that is due to the arrival of the data that it allows to be sent: a ring that never stops the
// sender holds twice as many, since credit is returned for half of it.
func (p *Params) Flight() int64 {
	const large = 1 << 20
	perByte := p.Os.At(large) / large
	if perByte <= 0 {
		return 0
	}
	return int64(min(p.CreditTrip()/perByte, MaxSize))
}
