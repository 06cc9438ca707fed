package rma

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
)

// The compiler keeps values of at most four fields and four words in registers. Others lie in
// memory, written a word and read two words at a time, which waits until the stores before them
// have left the processor: in a stream of messages, those to the peer's memory as well.
func TestRequestFitsRegisters(t *testing.T) {
	for _, r := range []reflect.Type{reflect.TypeFor[Request](), reflect.TypeFor[RecvRequest]()} {
		require.LessOrEqual(t, r.NumField(), 4)
		require.LessOrEqual(t, r.Size(), uintptr(4*8))
	}
}
