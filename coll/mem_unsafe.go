package coll

import (
	"fmt"
	"reflect"
	"sync"
	"unsafe"
)

// bytesOf returns the memory of s.
func bytesOf[T any](s []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), uintptr(len(s))*unsafe.Sizeof(*new(T)))
}

// elementsOf is the inverse of bytesOf. ok is false if b is not aligned for T.
func elementsOf[T any](b []byte) (s []T, ok bool) {
	p := unsafe.Pointer(unsafe.SliceData(b))
	if uintptr(p)%unsafe.Alignof(*new(T)) != 0 {
		return nil, false
	}
	return unsafe.Slice((*T)(p), uintptr(len(b))/unsafe.Sizeof(*new(T))), true
}

// address returns the address of b, which lasts as long as its memory: no goroutine's stack has it.
func address(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

// same reports whether two slices are the same memory.
func same[T any](a, b []T) bool {
	return len(a) > 0 && len(a) == len(b) && unsafe.SliceData(a) == unsafe.SliceData(b)
}

// element describes a type of elements in a call.
type element struct {
	kind reflect.Kind
	size int
}

var elements sync.Map // reflect.Type to element, or to error

// elementOf returns the description of T, which must be of a fixed size above 0 and hold no
// pointers.
func elementOf[T any]() (element, error) {
	switch any((*T)(nil)).(type) { // most common, and without a look at the table
	case *float64:
		return element{reflect.Float64, 8}, nil
	case *float32:
		return element{reflect.Float32, 4}, nil
	case *int64:
		return element{reflect.Int64, 8}, nil
	}
	t := reflect.TypeFor[T]()
	v, ok := elements.Load(t)
	if !ok {
		switch {
		case t.Size() == 0 || t.Size() > maxElement:
			v = fmt.Errorf("%w: an element of %v has %d bytes, 1 to %d are possible", ErrInvalid, t, t.Size(), maxElement)
		case pointers(t):
			v = fmt.Errorf("%w: %v has pointers, which mean nothing to another process", ErrInvalid, t)
		default:
			v = element{kind: t.Kind(), size: int(t.Size())}
		}
		elements.Store(t, v)
	}
	if err, bad := v.(error); bad {
		return element{}, err
	}
	return v.(element), nil
}

// pointers reports whether values of t hold pointers.
func pointers(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Array:
		return t.Len() > 0 && pointers(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if pointers(t.Field(i).Type) {
				return true
			}
		}
		return false
	}
	return t.Kind() == reflect.Uintptr || t.Kind() > reflect.Complex128
}
