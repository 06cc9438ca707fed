//go:build armbe || arm64be || m68k || mips || mips64 || mips64p32 || ppc || ppc64 || s390 || s390x || shbe || sparc || sparc64

package eager

import "math/bits"

// hostWord converts a little-endian word loaded from the wire to a number.
func hostWord(w uint64) uint64 { return bits.ReverseBytes64(w) }
