package rma

import (
	"fmt"

	"github.com/seed33544411/rma/internal/onesided"
)

// outside returns the error of n bytes from offset off on, of memory that has size bytes.
func outside[N int | uint64](off int, n N, size uint64) error {
	return fmt.Errorf("%w: %d bytes at offset %d of %d", ErrBounds, n, off, size)
}

// undefined returns the error of a reduction that the operation does not have for these elements.
func undefined(op onesided.Reduction, elements onesided.Type) error {
	return fmt.Errorf("%w: no %v of %v elements in this operation", ErrInvalid, op, elements)
}
