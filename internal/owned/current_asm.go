//go:build rmadebug && (amd64 || arm64)

package owned

// current identifies the calling goroutine: the address of what the runtime keeps of it.
func current() uintptr
