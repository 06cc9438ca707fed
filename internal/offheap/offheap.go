// Package offheap allocates page-aligned memory outside the Go heap, counted by purpose.
// The garbage collector neither moves nor scans nor frees it, so devices and peers may use
// its addresses.
//
// It imports nothing of the project. Freed memory is unmapped: a later access faults
// instead of corrupting other data. On systems other than unixes every allocation fails
// with an error that wraps errors.ErrUnsupported.
package offheap

import (
	"errors"
	"fmt"
	"math"
	"os"
	"sync/atomic"

	"github.com/seed33544411/rma/internal/enum"
)

// Purpose is the use of memory; it indexes the counters.
type Purpose uint8

// Purposes of off-heap memory.
const (
	Regions  Purpose = iota // memory of applications
	Rings                   // eager, rendezvous and notification rings
	Staging                 // bounce buffers, frames
	Scratch                 // benchmarks and tests
	Arenas                  // slabs that an arena divides; it counts the pieces by purpose
	purposes                // number of purposes
)

// Purposes is the number of purposes, for tables indexed by them.
const Purposes = int(purposes)

var purposeNames = []string{"regions", "rings", "staging", "scratch", "arenas"}

// String returns the name of the purpose in statistics.
func (p Purpose) String() string { return enum.Name("purpose", purposeNames, p) }

// ErrSize reports a size that is not positive or too large to round up.
var ErrSize = errors.New("offheap: invalid size")

// counter occupies a cache line of its own.
type counter struct {
	n atomic.Int64
	_ [56]byte
}

var inUse [purposes]counter

// maxSize prevents overflow when rounding up (pages have 64 KiB at most); it is well below
// what any processor maps.
const maxSize = min(1<<46, math.MaxInt-64<<10)

// PageSize is the size of a page in bytes.
var PageSize = os.Getpagesize()

// RoundUp rounds n up to whole pages.
func RoundUp(n int) int { return (n + PageSize - 1) &^ (PageSize - 1) }

// Alloc returns size bytes of zeroed memory that starts on a page boundary;
// its capacity is the mapping, whole pages. Free it with Free.
func Alloc(size int, p Purpose) ([]byte, error) {
	if size <= 0 || size > maxSize {
		return nil, fmt.Errorf("%w: %d", ErrSize, size)
	}
	b, err := mapPrivate(RoundUp(size))
	if err != nil {
		return nil, fmt.Errorf("offheap: mmap of %d bytes for %v: %w", size, p, err)
	}
	count(b, p)
	return b[:size], nil
}

// Map maps size bytes of the file fd, shared and writable, from offset 0.
// Free it with Free.
func Map(fd, size int, p Purpose) ([]byte, error) {
	return mapFile(fd, size, true, p)
}

// MapRead is Map with read access only: a store faults.
func MapRead(fd, size int, p Purpose) ([]byte, error) {
	return mapFile(fd, size, false, p)
}

func mapFile(fd, size int, write bool, p Purpose) ([]byte, error) {
	if size <= 0 || size > maxSize {
		return nil, fmt.Errorf("%w: %d", ErrSize, size)
	}
	b, err := mapShared(fd, RoundUp(size), write)
	if err != nil {
		return nil, fmt.Errorf("offheap: mmap of %d bytes of descriptor %d for %v: %w", size, fd, p, err)
	}
	count(b, p)
	return b[:size], nil
}

// Free unmaps memory returned by Alloc or Map; b must begin at its start. Later accesses
// fault.
func Free(b []byte, p Purpose) error {
	if cap(b) == 0 {
		return nil
	}
	n := int64(cap(b))
	noteFree(b) // first: the address may be allocated again at once
	if err := unmap(b[:cap(b)]); err != nil {
		return fmt.Errorf("offheap: munmap of %d bytes for %v: %w", n, p, err)
	}
	inUse[p].n.Add(-n)
	return nil
}

// count records a mapping, all of b.
func count(b []byte, p Purpose) {
	inUse[p].n.Add(int64(cap(b)))
	noteAlloc(b, p)
}

// InUse returns the number of bytes now mapped for p.
func InUse(p Purpose) int64 { return inUse[p].n.Load() }

// Total returns the number of bytes mapped for all purposes; leak checks compare it.
func Total() int64 {
	var n int64
	for i := range inUse {
		n += inUse[i].n.Load()
	}
	return n
}
