package bulk

import "github.com/klauspost/cpuid/v2"

// kernel is a set of instructions that store past the cache.
type kernel uint8

const (
	sse2 kernel = iota
	avx2
	avx512
	kernels
)

var kernelNames = [kernels]string{"sse2", "avx2", "avx512"}

// has reports whether processor and system support k.
func (k kernel) has() bool {
	switch k {
	case avx512:
		return cpuid.CPU.Supports(cpuid.AVX512F)
	case avx2:
		return cpuid.CPU.Supports(cpuid.AVX2)
	}
	return true // every amd64 processor
}

// best is the kernel that stream uses. Whole lines in one store (avx512) need no
// write-combining buffer; but on AMD's Zen 5 two halves (avx2) are as fast if the caches
// hold the source, and 1.2 to 1.3 times as fast if it comes from memory (16 and 64 MiB),
// prefetched or not.
var best = choose(cpuid.CPU.VendorID == cpuid.AMD, kernel.has)

func choose(amd bool, has func(kernel) bool) kernel {
	switch {
	case has(avx512) && !amd:
		return avx512
	case has(avx2):
		return avx2
	}
	return sse2
}

var erms = cpuid.CPU.Supports(cpuid.ERMS)

func hasStream() bool    { return true }
func hasString() bool    { return erms }
func kernelName() string { return kernelNames[best] }

// stream copies whole lines; dst starts on a line and len(src) is at least len(dst).
func stream(dst, src []byte) { best.stream(dst, src) }

func (k kernel) stream(dst, src []byte) {
	if len(dst) == 0 {
		return
	}
	switch k {
	case avx512:
		streamAVX512(&dst[0], &src[0], uint64(len(dst)))
	case avx2:
		streamAVX2(&dst[0], &src[0], uint64(len(dst)))
	default:
		streamSSE2(&dst[0], &src[0], uint64(len(dst)))
	}
}

// moveString copies len(dst) bytes; len(src) is at least that.
func moveString(dst, src []byte) {
	if len(dst) > 0 {
		moveBytes(&dst[0], &src[0], uint64(len(dst)))
	}
}

// The kernels copy n bytes, a positive multiple of 64, to dst, which starts on a line. They
// end with SFENCE: non-temporal stores are ordered neither among themselves nor with later
// stores of the caller, for instance a flag.
//
//go:noescape
func streamAVX512(dst, src *byte, n uint64)

//go:noescape
func streamAVX2(dst, src *byte, n uint64)

//go:noescape
func streamSSE2(dst, src *byte, n uint64)

// moveBytes is REP MOVSB. Its stores may become visible in any order among themselves, but
// before those that follow it.
//
//go:noescape
func moveBytes(dst, src *byte, n uint64)
