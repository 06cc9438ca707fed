package compare

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/seed33544411/rma/internal/bench"
)

// Kind is a kind of test.
type Kind string

// Kinds of tests: three of messages, two of one-sided writes. See the package
// comment.
const (
	Lat   Kind = "lat"
	BW    Kind = "bw"
	Rate  Kind = "rate"
	Put   Kind = "put"
	PutBW Kind = "putbw"
)

// Kinds are all kinds, in the order of the documentation.
var Kinds = []Kind{Lat, BW, Rate, Put, PutBW}

// Test is one test: messages or writes of Size bytes.
type Test struct {
	Kind Kind
	Size int
}

// ErrTest reports an invalid test.
var ErrTest = errors.New("bad test")

// MaxSize bounds messages in bytes: both sides allocate a window of them.
const MaxSize = 64 << 20

// Defaults are the tests of a comparison by default: the rate of small messages, for which
// gathering is made; latency; and bandwidth on either side of the threshold of a rendezvous.
const Defaults = "rate:64,lat:8,bw:64K,bw:1M"

// ParseTests reads a list such as "rate:64,lat:8,bw:64K".
func ParseTests(s string) ([]Test, error) {
	var out []Test
	for item := range strings.SplitSeq(s, ",") {
		kind, size, ok := strings.Cut(strings.TrimSpace(item), ":")
		k := Kind(kind)
		if !ok || !slices.Contains(Kinds, k) {
			return nil, fmt.Errorf("%w %q: want %s and :SIZE", ErrTest, item, joined(Kinds, ", "))
		}
		ns, err := bench.ParseSizes(size)
		if err != nil {
			return nil, fmt.Errorf("%w %q: %w", ErrTest, item, err)
		}
		for _, n := range ns {
			t := Test{k, n}
			if n > MaxSize || slices.Contains(out, t) {
				return nil, fmt.Errorf("%w %q: over %s, or twice", ErrTest, item, bench.FormatSize(MaxSize))
			}
			out = append(out, t)
		}
	}
	return out, nil
}

// String formats t as ParseTests reads it.
func (t Test) String() string { return string(t.Kind) + ":" + bench.FormatSize(t.Size) }

// Unit returns the unit of the test's figure.
func (t Test) Unit() string {
	switch t.Kind {
	case Lat, Put:
		return "µs"
	case BW, PutBW:
		return "MB/s"
	}
	return "Mmsg/s"
}

// Figure returns the figure of r that the test measures.
func (t Test) Figure(r bench.Result) float64 {
	switch t.Kind {
	case Lat, Put:
		return r.LatUS.P50
	case BW, PutBW:
		return r.MBs
	}
	return r.Mmsgs
}

// OneSided reports whether the test is of puts, not of messages.
func (t Test) OneSided() bool { return t.Kind == Put || t.Kind == PutBW }

// less reports whether less is better.
func (t Test) less() bool { return t.Kind == Lat || t.Kind == Put }

// ratio is greater than 1 if ours is ahead.
func (t Test) ratio(ours, theirs float64) float64 {
	if t.less() {
		return theirs / ours
	}
	return ours / theirs
}
