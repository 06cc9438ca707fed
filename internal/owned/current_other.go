//go:build rmadebug && !amd64 && !arm64

package owned

import (
	"bytes"
	"runtime"
	"strconv"
	"sync"
)

var headers = sync.Pool{New: func() any { return new([64]byte) }}

// current identifies the calling goroutine: its number, from the header of its stack
// trace ("goroutine 7 [running]:").
func current() uintptr {
	buf := headers.Get().(*[64]byte)
	defer headers.Put(buf)
	b := bytes.TrimPrefix(buf[:runtime.Stack(buf[:], false)], []byte("goroutine "))
	b, _, _ = bytes.Cut(b, []byte(" "))
	n, err := strconv.ParseUint(string(b), 10, 64)
	if err != nil {
		panic("owned: a stack trace without a goroutine's number: " + err.Error())
	}
	return uintptr(n)
}
