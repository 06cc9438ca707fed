package play

import (
	"runtime"
	"runtime/debug"
)

// version is what is measured: the library, its version if it is not Go's own, and
// that of Go.
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
