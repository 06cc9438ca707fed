//go:build !(armbe || arm64be || m68k || mips || mips64 || mips64p32 || ppc || ppc64 || s390 || s390x || shbe || sparc || sparc64)

package eager

// hostWord converts a word loaded from the wire to a number: nothing to do.
func hostWord(w uint64) uint64 { return w }
