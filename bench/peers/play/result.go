package play

import (
	"encoding/json"
	"io"
	"runtime"
	"runtime/debug"
	"slices"
	"time"
)

// Result is the line of JSON that a client prints.
type Result struct {
	Peer    string  `json:"peer"`
	How     string  `json:"how"` // which of the library's ways, in words
	Net     string  `json:"net"`
	Test    string  `json:"test"`
	Size    int     `json:"size"`
	Iters   int     `json:"iters"`
	Seconds float64 `json:"seconds"`

	P50US float64 `json:"p50_us,omitempty"` // lat: half a round trip
	MBs   float64 `json:"mb_s,omitempty"`   // bw and rate: 1e6 bytes a second
	Mmsgs float64 `json:"mmsg_s,omitempty"` // 1e6 messages a second
}

// newResult computes the result of the timed operations.
func newResult(t Transport, p *Plan, took time.Duration, trips []time.Duration) Result {
	r := Result{Peer: t.Name(), How: t.How(p), Net: p.Net, Test: p.Test, Size: p.Size, Iters: p.Iters, Seconds: took.Seconds()}
	if p.Latency() {
		r.P50US = median(trips).Seconds() * 1e6 / 2
		return r
	}
	if took > 0 {
		r.Mmsgs = float64(p.Iters) / took.Seconds() / 1e6
		r.MBs = r.Mmsgs * float64(p.Size)
	}
	return r
}

// Write writes the line.
func (r Result) Write(w io.Writer) error { return json.NewEncoder(w).Encode(r) }

// median sorts ds.
func median(ds []time.Duration) time.Duration {
	if len(ds) == 0 {
		return 0
	}
	slices.Sort(ds)
	return (ds[(len(ds)-1)/2] + ds[len(ds)/2]) / 2
}

// version returns the name of the library, its version if it is not Go's own, and that
// of Go.
func version(t Transport) string {
	s := t.Name()
	if b, ok := debug.ReadBuildInfo(); ok {
		for _, m := range b.Deps {
			if m.Path == t.Module() {
				s += " " + m.Version
			}
		}
	}
	return s + " (" + runtime.Version() + ")"
}
