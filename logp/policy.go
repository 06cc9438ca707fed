package logp

import "fmt"

// Policy overrides the model. The zero value lets the model choose.
type Policy struct {
	// Forced sends everything in Mode, where Mode can carry it; what it cannot
	// goes the cheapest other way.
	Forced bool
	Mode   Mode
	// Table, when not empty and nothing is forced, sends each message in the
	// mode of the first rule that matches it; what no rule matches, or its mode
	// cannot carry, goes the cheapest other way.
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

// free says whether the model chooses.
func (o *Policy) free() bool { return !o.Forced && len(o.Table) == 0 }

// pick returns the mode that o wants for a message of a batch of n.
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
