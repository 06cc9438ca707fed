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
	for r, words := range map[reflect.Type]uintptr{
		reflect.TypeFor[Request](): 3, reflect.TypeFor[RecvRequest](): 3, reflect.TypeFor[AtomicRequest](): 4,
		reflect.TypeFor[AtomicRequest32](): 4, reflect.TypeFor[FetchRequest[float32]](): 4,
	} {
		require.LessOrEqual(t, fields(r), int(words), "%v", r)
		require.LessOrEqual(t, r.Size(), 8*words, "%v", r)
	}
}

// fields returns the number of fields of a struct, those of its structs included.
func fields(r reflect.Type) (n int) {
	for i := range r.NumField() {
		if f := r.Field(i).Type; f.Kind() == reflect.Struct {
			n += fields(f)
		} else {
			n++
		}
	}
	return n
}
