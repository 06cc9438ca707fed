package logp

// Switch is a size at which the best single mode for n equal messages changes.
type Switch struct {
	Size int64 `json:"size"` // first size of To
	From Mode  `json:"from"`
	To   Mode  `json:"to"`
}

// Switches returns where, for n messages of one size from 0 to most bytes with
// the given flags, Choose changes its mind, in ascending order: the thresholds that
// other libraries are configured with. Exact to the byte where choices last for
// more than an eighth of an octave; shorter ones may be missed. Sizes that no mode
// can carry belong to no side. It is for people, reports and tests, not for the
// data path.
func (p *Params) Switches(l *Limits, n int, flags Flags, most int64) []Switch {
	b := Batch{Limits: *l, Messages: make([]Message, min(max(n, 1), MaxMessages))}
	choose := func(size int64) (Mode, bool) {
		for i := range b.Messages {
			b.Messages[i] = Message{Size: size, Flags: flags}
		}
		d, err := p.Choose(&b)
		return d.Mode, err == nil
	}
	var out []Switch
	most = min(most, MaxSize)
	low := int64(0)
	from, ok := choose(0)
	for low < most {
		high := min(low+max(1, low/8), most)
		to, can := choose(high)
		switch {
		case !can || !ok:
		case to != from:
			a, b := low, high // from holds at a, not at b
			for b-a > 1 {
				if m, can := choose(a + (b-a)/2); can && m == from {
					a += (b - a) / 2
				} else {
					b = a + (b-a)/2
				}
			}
			if m, can := choose(b); can {
				out = append(out, Switch{Size: b, From: from, To: m})
				low, from = b, m
				continue
			}
		}
		low, from, ok = high, to, can
	}
	return out
}
