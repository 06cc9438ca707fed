//go:build !rmadebug

package owned

// On reports whether assertions are compiled in.
const On = false

// Holder knows which goroutine owns something. The zero Holder is nobody's.
type Holder struct{}

// Take says that the calling goroutine is the owner from now on.
// Hot path.
func (*Holder) Take() {}

// Drop says that nobody is. The owner calls it.
// Hot path.
func (*Holder) Drop() {}

// Assert panics unless the calling goroutine is the owner. A nil Holder is everybody's.
// Hot path.
func (*Holder) Assert() {}
