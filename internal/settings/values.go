package settings

import (
	"fmt"
	"io"
	"net/netip"
	"strings"
	"time"
)

// Origin is where a value comes from; a later one wins.
type Origin uint8

// Origins.
const (
	Default Origin = iota
	Code
	File
	Env
)

func (o Origin) String() string {
	switch o {
	case Code:
		return "code"
	case File:
		return "file"
	case Env:
		return "env"
	}
	return "default"
}

// Value is what a setting is set to.
type Value struct {
	*Setting
	Text   string // as written; empty: nothing, see Setting.Else
	Origin Origin
	At     string // which field, line or variable; empty for a default

	parsed parsed
}

// Shown is the value for people: secrets are not.
func (v Value) Shown() string {
	switch {
	case v.Text == "" && v.Else != "":
		return "(" + strings.ReplaceAll(v.Else, "`", "") + ")"
	case v.Text == "":
		return "(not set)"
	case v.Type.Kind == Secret:
		return "(secret)"
	}
	return v.Text
}

// Values are all settings with their values.
type Values struct {
	byEnv map[string]Value

	// File is the settings file that was read, "" if none.
	File string

	// Unknown are variables that begin with RMA_ and are no settings.
	Unknown Errors
}

// Get returns the setting of that variable. It panics if none is declared: that
// is a slip in this module.
func (v *Values) Get(env string) Value {
	x, ok := v.byEnv[env]
	if !ok {
		panic("settings: " + env + " is not declared")
	}
	return x
}

// All returns every value in the order of the registry.
func (v *Values) All() []Value {
	var out []Value
	for _, s := range All() {
		out = append(out, v.Get(s.Env))
	}
	return out
}

// Invalid returns the error of a value that fits its type but makes no sense.
func (v *Values) Invalid(env string, why error) error {
	x := v.Get(env)
	return &Error{At: shown(x.Setting, x.Text, x.Origin, x.At), What: why.Error(), Err: ErrInvalid, Why: why}
}

// Text returns the value as written, "" if there is none.
func (v *Values) Text(env string) string { return v.Get(env).Text }

// Int returns a Count or Bytes, 0 if there is none.
func (v *Values) Int(env string) int64 { return v.Get(env).parsed.n }

// Duration returns a Duration, 0 if there is none.
func (v *Values) Duration(env string) time.Duration { return time.Duration(v.Get(env).parsed.n) }

// Switch returns a Switch, and whether it has a value at all.
func (v *Values) Switch(env string) (on, set bool) {
	x := v.Get(env)
	return x.parsed.n != 0, x.Text != ""
}

// Addr returns an Address, the zero one if there is none.
func (v *Values) Addr(env string) netip.Addr { return v.Get(env).parsed.addr }

// WarnUnknown writes a line for each of Unknown, in the name of a program.
func (v *Values) WarnUnknown(w io.Writer, program string) {
	for _, e := range v.Unknown {
		fmt.Fprintf(w, "%s: warning: %v\n", program, e)
	}
}
