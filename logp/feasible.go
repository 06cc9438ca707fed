package logp

// Feasible returns nil when mode m can carry message x of a batch with limits
// l, else an error that wraps ErrInfeasible and says why. It does not allocate.
func (p *Params) Feasible(l *Limits, x Message, m Mode) error {
	switch m {
	case Eager:
		if x.Size > l.EagerMax {
			return ErrEagerBlock
		}
	case Gather:
		if x.Size+int64(l.Segment)+int64(l.Header) > l.GatherMax {
			return ErrGatherRing
		}
	case Scatter:
		if l.ScatterSegs < 1 {
			return ErrScatterOff
		}
		if x.Flags&(Registered|DestRegistered) != Registered|DestRegistered && !p.R.Known() {
			return ErrUnregistered
		}
	default:
		return ErrNoMode
	}
	return nil
}

// staged says whether gather copies x behind its header.
func (l *Limits) staged(x Message) bool {
	return x.Flags&Registered == 0 || x.Size <= l.GatherCopy || l.MaxSGE < 2
}

// copied says whether eager copies x at the sender.
func (l *Limits) copied(x Message) bool {
	return x.Flags&Registered == 0 || l.EagerInPlace == 0 || x.Size < l.EagerInPlace
}
