package logp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
)

// Params describes one direction of a link between two classes of peers: the
// parameterised LogP of Kielmann et al. (2000) with the additions of the package
// comment. The zero value describes a link that costs nothing.
type Params struct {
	// Os(m) is the time for which an operation of m bytes occupies the sending adapter.
	Os Curve `json:"os"`
	// Or(m) is the work of the receiver's software for one operation of m bytes that
	// arrives in a ring: find, check, account. Without copies.
	Or Curve `json:"or"`
	// C(m) is the time of a local copy of m bytes.
	C Curve `json:"copy"`
	// Memory(S) is the additional time of a batch of S bytes because it does not fit the
	// processor's caches; see Curve.Split.
	Memory Curve `json:"memory,omitzero"`
	// R(m) is the time of registering and deregistering m bytes, and by how much longer the
	// link takes to read them than memory that it has allocated. Unknown: never register for
	// a transfer.
	R Curve `json:"register"`

	G  float64 `json:"g"`  // ns between two operations of a link, beyond Os
	Ls float64 `json:"ls"` // ns of soft latency: through the software of both ends
	Lh float64 `json:"lh"` // ns of hard latency: an answer without software at the target

	// CPU is the processor time of posting.
	CPU Posting `json:"ocpu"`

	// Extra is the cost of a mode beyond the formulas: header and descriptor processing,
	// matching, completions. It is fitted from measured batches.
	Extra [NumModes]Extra `json:"extra"`

	// Scale corrects a mode by a factor that a Refiner has learned. 0 means 1.
	Scale [NumModes]float64 `json:"scale"`
}

// Posting is the cost of one posting call with k work requests: A + B·k.
type Posting struct {
	A float64 `json:"a"`
	B float64 `json:"b"`
}

// Extra is a correction of one mode in ns. Terms may be negative, except PerFirst: if
// copies overlap with transfers, the formulas predict too much.
type Extra struct {
	Fixed      float64 `json:"fixed"`       // once per plan that uses the mode; if negative, subtracted from its latency
	PerOp      float64 `json:"per_op"`      // per eager write, gather write, descriptor
	PerMessage float64 `json:"per_message"` // per message
	PerByte    float64 `json:"per_byte"`    // per byte of payload

	// PerFirst is per byte of the first FirstBytes that the mode carries in a batch, in
	// addition to PerByte: until the copies of both ends overlap, each byte takes the time
	// of both.
	PerFirst float64 `json:"per_first,omitzero"`
}

// FirstBytes bounds the bytes of a batch that Extra.PerFirst counts.
const FirstBytes = 8 << 10

// ExtraTerms is the number of terms of an Extra.
const ExtraTerms = 5

// Terms returns the terms in the order of their declaration.
func (e *Extra) Terms() [ExtraTerms]float64 {
	return [...]float64{e.Fixed, e.PerOp, e.PerMessage, e.PerByte, e.PerFirst}
}

// ExtraOf is the inverse of Terms.
func ExtraOf(x [ExtraTerms]float64) Extra {
	return Extra{Fixed: x[0], PerOp: x[1], PerMessage: x[2], PerByte: x[3], PerFirst: x[4]}
}

// first returns the additional cost of the first of the given number of bytes.
func (e *Extra) first(bytes int64) float64 { return e.PerFirst * float64(min(bytes, FirstBytes)) }

const (
	// MinScale and MaxScale bound a correction: a model that is wrong by more than a factor
	// of four needs new samples, not a factor.
	MinScale = 0.25
	MaxScale = 4
)

// Validate checks p. Errors wrap ErrParams.
func (p *Params) Validate() error {
	for _, v := range []struct {
		name string
		x    float64
	}{{"g", p.G}, {"ls", p.Ls}, {"lh", p.Lh}, {"ocpu.a", p.CPU.A}, {"ocpu.b", p.CPU.B}} {
		if !(v.x >= 0 && v.x <= MaxNS) {
			return fmt.Errorf("%w: %s is %v ns, want 0 to %v", ErrParams, v.name, v.x, MaxNS)
		}
	}
	for m, e := range p.Extra {
		for _, x := range e.Terms() {
			if !(x >= -MaxNS && x <= MaxNS) {
				return fmt.Errorf("%w: extra of %v is %+v", ErrParams, Mode(m), e)
			}
		}
	}
	for m, s := range p.Scale {
		if s != 0 && !(s >= MinScale && s <= MaxScale) {
			return fmt.Errorf("%w: scale of %v is %v, want 0 or %v to %v", ErrParams, Mode(m), s, MinScale, MaxScale)
		}
	}
	return nil
}

// scale returns the effective correction of mode m.
func (p *Params) scale(m Mode) float64 {
	if s := p.Scale[m]; s != 0 {
		return s
	}
	return 1
}

// latency returns the time from the last occupancy of mode m to the arrival of its data.
func (p *Params) latency(m Mode) (soft, hard float64) {
	if m == Scatter {
		return 2 * p.Ls, p.Lh
	}
	return p.Ls, 0
}

// maxParamsJSON bounds the input of ParseParams: four full curves are 80 KiB.
const maxParamsJSON = 1 << 20

// ParseParams parses Params from JSON. It rejects unknown fields, trailing data and values
// that Validate rejects. Errors wrap ErrParams.
func ParseParams(b []byte) (Params, error) {
	var p Params
	if len(b) > maxParamsJSON {
		return p, fmt.Errorf("%w: %d bytes of JSON, at most %d", ErrParams, len(b), maxParamsJSON)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		return Params{}, fmt.Errorf("%w: %w", ErrParams, err)
	}
	if _, err := d.Token(); err != io.EOF {
		return Params{}, fmt.Errorf("%w: data after the parameters", ErrParams)
	}
	if err := p.Validate(); err != nil {
		return Params{}, err
	}
	return p, nil
}

// Rates returns the bandwidths of copying, of registering, and of the link, in bytes per second,
// for what a transfer of 1 MiB has beyond one of 64 KiB. Zero means unknown.
func (p *Params) Rates() (copying, registering, link float64) {
	const from, to = 64 << 10, 1 << 20
	rate := func(cs ...Curve) float64 {
		ns := 0.0
		for _, c := range cs {
			ns += c.At(to) - c.At(from)
		}
		if ns <= 0 {
			return 0
		}
		return (to - from) * 1e9 / ns
	}
	return rate(p.C), rate(p.R), rate(p.Os, p.Memory)
}
