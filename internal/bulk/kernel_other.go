//go:build !amd64

package bulk

// There are no kernels: the runtime's copy is used for all. On arm64 its pair stores come
// close to the non-temporal pair (STNP), which is only a hint there.

func hasStream() bool    { return false }
func hasString() bool    { return false }
func kernelName() string { return "none" }

func stream(dst, src []byte)     { copy(dst, src) }
func moveString(dst, src []byte) { copy(dst, src) }
