package rma

import "unsafe"

// Number is the set of numeric types as which memory can be viewed.
type Number interface {
	~int8 | ~int16 | ~int32 | ~int64 | ~uint8 | ~uint16 | ~uint32 | ~uint64 |
		~float32 | ~float64 | ~complex64 | ~complex128
}

// View returns the buffer's memory as a slice of numbers in the machine's byte order. The
// buffer's length must be a multiple of the number's size (ErrLength), and its address
// must be aligned for T (ErrAlign). The error is ErrForeign if the region is closed,
// ErrBounds if the buffer exceeds it. The slice must not be used after the region is
// closed.
func View[T Number](b Buffer) ([]T, error) {
	mem, err := b.bytes()
	if err != nil {
		return nil, err
	}
	size := sizeOf[T]()
	switch p := unsafe.SliceData(mem); {
	case len(mem)%size != 0:
		return nil, ErrLength
	case uintptr(unsafe.Pointer(p))%unsafe.Alignof(*new(T)) != 0:
		return nil, ErrAlign
	default:
		return unsafe.Slice((*T)(unsafe.Pointer(p)), len(mem)/size), nil
	}
}

// sizeOf is the size of a T in bytes.
func sizeOf[T Number]() int { return int(unsafe.Sizeof(*new(T))) }

// Bytes returns the memory of s as bytes, for PutBytes, GetBytes, Register, Send and
// similar methods.
func Bytes[T Number](s []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), uintptr(len(s))*unsafe.Sizeof(*new(T)))
}

// bitsOf returns the bits of v, which has 4 or 8 bytes, extended by zeros.
func bitsOf[T Number](v T) uint64 {
	if unsafe.Sizeof(v) == 4 {
		return uint64(*(*uint32)(unsafe.Pointer(&v)))
	}
	return *(*uint64)(unsafe.Pointer(&v))
}

// ofBits returns the number with these bits.
func ofBits[T Number](b uint64) T {
	if unsafe.Sizeof(*new(T)) == 4 {
		low := uint32(b)
		return *(*T)(unsafe.Pointer(&low))
	}
	return *(*T)(unsafe.Pointer(&b))
}

// within returns at which element of all part begins, if all of its elements lie there.
func within[T Number](all, part []T) (at int, ok bool) {
	base, p := uintptr(unsafe.Pointer(unsafe.SliceData(all))), uintptr(unsafe.Pointer(unsafe.SliceData(part)))
	size := unsafe.Sizeof(*new(T))
	off := p - base // wraps to something huge below base
	if len(part) == 0 || off%size != 0 || off/size > uintptr(len(all)) || uintptr(len(part)) > uintptr(len(all))-off/size {
		return 0, false
	}
	return int(off / size), true
}
