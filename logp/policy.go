package logp

import "fmt"

// Policy overrides the model. The zero value lets the model choose.
type Policy struct {
	// Forced sends every message in Mode if Mode can carry it, and others in the cheapest
	// mode.
	Forced bool
	Mode   Mode
	// Table, if it is not empty and no mode is forced, sends each message in the mode of
	// the first rule that matches it. Messages without a matching rule, or that its mode
	// cannot carry, are sent in the cheapest mode.
	Table []Rule
}

// Rule matches messages of up to MaxSize bytes in batches of up to MaxCount messages, if
// they are among the First messages of the batch, in the order of their sequence numbers; 0
// means any.
type Rule struct {
	MaxSize  int64 `json:"max_size,omitempty"`
	MaxCount int   `json:"max_count,omitempty"`
	First    int   `json:"first,omitempty"`
	Mode     Mode  `json:"mode"`
}

// matches reports whether r decides for message number at of a batch of n.
func (r *Rule) matches(size int64, n, at int) bool {
	return (r.MaxSize == 0 || size <= r.MaxSize) && (r.MaxCount == 0 || n <= r.MaxCount) && (r.First == 0 || at < r.First)
}

// covers reports whether r matches every message that s matches.
func (r *Rule) covers(s *Rule) bool {
	within := func(s, r int64) bool { return r == 0 || s != 0 && s <= r }
	return within(s.MaxSize, r.MaxSize) && within(int64(s.MaxCount), int64(r.MaxCount)) && within(int64(s.First), int64(r.First))
}

// Validate checks o. Errors wrap ErrParams.
func (o *Policy) Validate() error {
	if o.Mode >= NumModes {
		return fmt.Errorf("%w: policy forces unknown %v", ErrParams, o.Mode)
	}
	for i, r := range o.Table {
		if r.Mode >= NumModes || r.MaxSize < 0 || r.MaxCount < 0 || r.First < 0 {
			return fmt.Errorf("%w: rule %d of the table: %+v", ErrParams, i, r)
		}
	}
	return nil
}

// Free reports whether the model chooses.
func (o *Policy) Free() bool { return !o.Forced && len(o.Table) == 0 }

// row returns the index of the rule for message number at of a batch of n; -1 if none
// matches.
func (o *Policy) row(size int64, n, at int) int {
	for i := range o.Table {
		if o.Table[i].matches(size, n, at) {
			return i
		}
	}
	return -1
}

// pick returns the mode that o determines for message number at of a batch of n.
func (o *Policy) pick(size int64, n, at int) (Mode, bool) {
	if o.Forced {
		return o.Mode, true
	}
	if i := o.row(size, n, at); i >= 0 {
		return o.Table[i].Mode, true
	}
	return 0, false
}
