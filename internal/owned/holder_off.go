//go:build !rmadebug

package owned

// On reports whether assertions are compiled in.
const On = false

// Holder records which goroutine owns something. The zero Holder has no owner.
type Holder struct{}

// Take makes the calling goroutine the owner.
// Hot path.
func (*Holder) Take() {}

// Drop ends the ownership. The owner calls it.
// Hot path.
func (*Holder) Drop() {}

// Assert panics unless the calling goroutine is the owner. On a nil Holder it does nothing.
// Hot path.
func (*Holder) Assert() {}
