//go:build !unix

package bubble

// Now is 0: unknown.
func Now() int64 { return 0 }

// Nap is not called: Inside is never true.
func Nap() {}
