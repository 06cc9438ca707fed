package settings

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed33544411/rma/internal/bytesize"
)

// Kind is a way to write values.
type Kind uint8

// Kinds.
const (
	Text     Kind = iota // anything
	Path                 // a file or directory
	Enum                 // one of a list of words
	Count                // a whole number
	Bytes                // a whole number of bytes, with K, M or G for powers of 1024
	Duration             // as Go writes them: 50ms, 2s, 1m30s
	Switch               // 1 or 0; also true and false, on and off, yes and no
	Address              // an IP address
	Secret               // hexadecimal; never shown
)

// Type is a kind with its bounds.
type Type struct {
	Kind     Kind
	Values   []string // of an Enum
	Unit     string   // of a Count
	Min, Max int64    // of Count, Bytes and Duration (ns), both included; both 0: none

	// Negative says what a negative value means, which is then allowed whatever
	// Min is.
	Negative string
}

// parsed is a value that fits its type.
type parsed struct {
	n    int64 // Count, Bytes, Duration (ns), Switch (0, 1)
	addr netip.Addr
}

var errForm = errors.New("malformed")

// parse reads text. The error, if any, has no text worth showing: Want says what
// would have been right.
func (t *Type) parse(text string) (p parsed, err error) {
	switch t.Kind {
	case Enum:
		if !slices.Contains(t.Values, text) {
			err = errForm
		}
	case Count:
		p.n, err = strconv.ParseInt(text, 10, 64)
	case Bytes:
		p.n, err = bytesize.Parse(text)
	case Duration:
		var d time.Duration
		d, err = time.ParseDuration(text)
		p.n = int64(d)
	case Switch:
		p.n, err = parseSwitch(text)
	case Address:
		p.addr, err = netip.ParseAddr(text)
	case Secret:
		if len(text)%2 != 0 || strings.Trim(strings.ToLower(text), "0123456789abcdef") != "" {
			err = errForm
		}
	}
	if err == nil && (t.Min != 0 || t.Max != 0) && (t.Negative == "" || p.n >= 0) && (p.n < t.Min || p.n > t.max()) {
		err = errForm
	}
	if err == nil && t.Negative == "" && t.Min == 0 && p.n < 0 {
		err = errForm
	}
	return p, err
}

func (t *Type) max() int64 {
	if t.Max == 0 {
		return math.MaxInt64
	}
	return t.Max
}

// Want says what a value must look like.
func (t *Type) Want() string {
	var s string
	switch t.Kind {
	case Enum:
		return list(t.Values)
	case Count:
		s = "a whole number"
		if t.Unit != "" {
			s = "a number of " + t.Unit
		}
	case Bytes:
		s = "bytes, such as 64K or 1M"
	case Duration:
		s = "a duration, such as 50ms or 2s"
	case Switch:
		return "0 or 1"
	case Address:
		return "an IP address"
	case Path:
		return "a path"
	case Secret:
		return "an even number of hexadecimal digits"
	default:
		return "text"
	}
	switch {
	case t.Max != 0:
		s += ", " + t.write(t.Min) + " … " + t.write(t.Max)
	case t.Min == 1 && t.Kind == Duration:
		s += ", more than 0"
	case t.Min != 0:
		s += ", at least " + t.write(t.Min)
	case t.Negative == "":
		s += ", not negative"
	}
	if t.Negative != "" {
		s += "; negative: " + t.Negative
	}
	return s
}

// write is the inverse of parse for numbers.
func (t *Type) write(n int64) string {
	switch t.Kind {
	case Duration:
		return time.Duration(n).String()
	case Bytes:
		return bytesize.Format(n)
	}
	return strconv.FormatInt(n, 10)
}

func parseSwitch(text string) (int64, error) {
	switch strings.ToLower(text) {
	case "on", "yes":
		return 1, nil
	case "off", "no":
		return 0, nil
	}
	b, err := strconv.ParseBool(text)
	if b {
		return 1, err
	}
	return 0, err
}

// list joins words as prose does: "a, b or c".
func list(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return fmt.Sprintf("%s or %s", strings.Join(words[:len(words)-1], ", "), words[len(words)-1])
}
