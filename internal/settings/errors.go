package settings

import (
	"errors"
	"fmt"
	"strings"
)

// Sentinels for errors.Is.
var (
	ErrInvalid = errors.New("invalid setting") // a value makes no sense
	ErrUnknown = errors.New("unknown setting") // there is none of that name
	ErrFile    = errors.New("settings file")   // cannot be read
)

// Error is one thing that is wrong.
type Error struct {
	At   string // "RMA_DEPTH", "/etc/rma.conf:4" or "Config.Depth"
	What string // the rest of the sentence
	Err  error  // a sentinel
	Why  error  // of which package acts on the setting; nil if none
}

func (e *Error) Error() string { return e.At + ": " + e.What }

// Unwrap returns the sentinel and the cause.
func (e *Error) Unwrap() []error {
	if e.Why == nil {
		return []error{e.Err}
	}
	return []error{e.Err, e.Why}
}

// Errors is all that is wrong, in the order of the sources.
type Errors []*Error

func (es Errors) Error() string {
	if len(es) == 1 {
		return es[0].Error()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d settings are wrong:", len(es))
	for _, e := range es {
		b.WriteString("\n\t" + e.Error())
	}
	return b.String()
}

// Unwrap returns the single errors.
func (es Errors) Unwrap() []error {
	out := make([]error, len(es))
	for i, e := range es {
		out[i] = e
	}
	return out
}

// err is es as an error: nil if there are none.
func (es Errors) err() error {
	if len(es) == 0 {
		return nil
	}
	return es
}
