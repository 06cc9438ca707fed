//go:build rmadebug && (amd64 || arm64)

package owned

// current identifies the calling goroutine by the address of its runtime structure.
func current() uintptr
