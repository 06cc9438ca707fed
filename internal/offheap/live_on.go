//go:build rmadebug

package offheap

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
)

// live maps the first byte of each allocation in use to its allocating calls.
var live sync.Map

// Live describes the memory in use, with the calls that allocated each piece.
func Live() (all []string) {
	live.Range(func(_, v any) bool {
		all = append(all, v.(string))
		return true
	})
	return all
}

func noteAlloc(b []byte, p Purpose) {
	var calls [16]uintptr
	var text strings.Builder
	fmt.Fprintf(&text, "%p: %d bytes of %v", b, cap(b), p)
	for frames := runtime.CallersFrames(calls[:runtime.Callers(3, calls[:])]); ; {
		f, more := frames.Next()
		fmt.Fprintf(&text, "\n\t%s:%d", f.Function, f.Line)
		if !more {
			break
		}
	}
	live.Store(&b[:1][0], text.String())
}

func noteFree(b []byte) { live.Delete(&b[:1][0]) }
