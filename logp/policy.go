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

// Rule matches messages of up to MaxSize bytes in batches of up to MaxCount
// messages; 0 means any.
type Rule struct {
	MaxSize  int64 `json:"max_size,omitempty"`
	MaxCount int   `json:"max_count,omitempty"`
	Mode     Mode  `json:"mode"`
}

// Validate checks o. Errors wrap ErrParams.
func (o *Policy) Validate() error {
	if o.Mode >= NumModes {
		return fmt.Errorf("%w: policy forces unknown %v", ErrParams, o.Mode)
	}
	for i, r := range o.Table {
		if r.Mode >= NumModes || r.MaxSize < 0 || r.MaxCount < 0 {
			return fmt.Errorf("%w: rule %d of the table: %+v", ErrParams, i, r)
		}
	}
	return nil
}

// free reports whether the model chooses.
func (o *Policy) free() bool { return !o.Forced && len(o.Table) == 0 }

// pick returns the mode that o determines for a message of a batch of n.
func (o *Policy) pick(size int64, n int) (Mode, bool) {
	if o.Forced {
		return o.Mode, true
	}
	for _, r := range o.Table {
		if (r.MaxSize == 0 || size <= r.MaxSize) && (r.MaxCount == 0 || n <= r.MaxCount) {
			return r.Mode, true
		}
	}
	return 0, false
}
