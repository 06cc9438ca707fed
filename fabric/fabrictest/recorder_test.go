package fabrictest

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// recorder is a testing.TB that records the outcome of a case.
type recorder struct {
	testing.TB
	name string

	mu       sync.Mutex
	log      []string
	failed   bool
	skipped  bool
	cleanups []func()
}

func (r *recorder) Helper()      {}
func (r *recorder) Name() string { return r.name }

func (r *recorder) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}

func (r *recorder) note(fail bool, s string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = r.failed || fail
	if len(s) > 300 {
		s = s[:300] + "…"
	}
	r.log = append(r.log, s)
}

func (r *recorder) Log(a ...any)              { r.note(false, fmt.Sprint(a...)) }
func (r *recorder) Logf(f string, a ...any)   { r.note(false, fmt.Sprintf(f, a...)) }
func (r *recorder) Error(a ...any)            { r.note(true, fmt.Sprint(a...)) }
func (r *recorder) Errorf(f string, a ...any) { r.note(true, fmt.Sprintf(f, a...)) }
func (r *recorder) Fail()                     { r.note(true, "failed") }
func (r *recorder) FailNow()                  { r.note(true, "failed"); runtime.Goexit() }
func (r *recorder) Fatal(a ...any)            { r.note(true, fmt.Sprint(a...)); runtime.Goexit() }
func (r *recorder) Fatalf(f string, a ...any) { r.note(true, fmt.Sprintf(f, a...)); runtime.Goexit() }
func (r *recorder) Skip(a ...any)             { r.skip(fmt.Sprint(a...)) }
func (r *recorder) Skipf(f string, a ...any)  { r.skip(fmt.Sprintf(f, a...)) }
func (r *recorder) SkipNow()                  { r.skip("skipped") }
func (r *recorder) skip(s string)             { r.note(false, s); r.skipped = true; runtime.Goexit() }
func (r *recorder) Failed() bool              { r.mu.Lock(); defer r.mu.Unlock(); return r.failed }
func (r *recorder) String() string            { return strings.Join(r.log, "; ") }

// record runs f as a test of its own and returns its outcome.
func record(tb testing.TB, name string, f func(tb testing.TB)) *recorder {
	r := &recorder{TB: tb, name: name}
	part := func(f func()) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer func() {
				if p := recover(); p != nil {
					r.note(true, fmt.Sprint("panic: ", p))
				}
			}()
			f()
		}()
		<-done
	}
	part(func() { f(r) })
	for len(r.cleanups) > 0 {
		last := r.cleanups[len(r.cleanups)-1]
		r.cleanups = r.cleanups[:len(r.cleanups)-1]
		part(last)
	}
	return r
}
