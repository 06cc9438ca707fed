package testutil

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/seed33544411/rma/internal/offheap"
)

// leakPatience bounds the wait for goroutines that are ending and for descriptors that a
// finaliser of os closes. Only a leak takes that long.
var leakPatience = Limit

// Main is for TestMain: it runs the tests (or, in a process started by Child.Start, the
// child's function) and fails the run if goroutines, descriptors or off-heap memory are
// left over. A binary started with an argument that is no flag runs nothing and fails: it was
// to be another program, and would run all tests again. Programs built with the tag rmadebug
// name the calls that allocated the memory.
//
//	func TestMain(m *testing.M) { testutil.Main(m) }
func Main(m *testing.M) {
	runChild()
	if len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-") {
		fmt.Fprintf(os.Stderr, "testutil: unknown command %q: the package's TestMain does not know the program that the tests start\n", os.Args[1])
		os.Exit(2)
	}
	before := snapshot()
	flag.Parse() // for watchHangs, before m.Run does
	watchHangs()
	code := m.Run()
	if code == 0 {
		if err := before.leaks(); err != nil {
			fmt.Fprintln(os.Stderr, "leak:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// NoLeaks fails the test if, after its cleanups registered later than this call, there are
// more goroutines, descriptors or memory than now. It is not for parallel tests: Main finds
// their leaks.
func NoLeaks(tb testing.TB) {
	tb.Helper()
	before := snapshot()
	tb.Cleanup(func() {
		if err := before.leaks(); err != nil {
			tb.Error("leak: ", err)
		}
	})
}

type census struct {
	routines goleak.Option
	fds      map[string]string
	offheap  [offheap.Purposes]int64
	live     map[string]bool // of programs with the tag rmadebug
}

func snapshot() census {
	// The first pipe starts the runtime's poller, whose own descriptors stay open.
	if r, w, err := os.Pipe(); err == nil {
		_, _ = r.Close(), w.Close()
	}
	c := census{routines: goleak.IgnoreCurrent(), fds: OpenFDs(), live: map[string]bool{}}
	for p := range c.offheap {
		c.offheap[p] = offheap.InUse(offheap.Purpose(p))
	}
	for _, piece := range offheap.Live() {
		c.live[piece] = true
	}
	return c
}

func (c census) leaks() error {
	var err error
	for end := time.Now().Add(leakPatience); ; time.Sleep(5 * time.Millisecond) {
		if err = c.compare(); err == nil || time.Now().After(end) {
			return err
		}
	}
}

func (c census) compare() error {
	var errs []error
	for p, before := range c.offheap {
		if n := offheap.InUse(offheap.Purpose(p)); n > before {
			errs = append(errs, fmt.Errorf("%d bytes of %v off the heap, %d before", n, offheap.Purpose(p), before))
		}
	}
	if len(errs) > 0 {
		for _, piece := range offheap.Live() {
			if !c.live[piece] {
				errs = append(errs, errors.New(piece))
			}
		}
	}
	now := OpenFDs()
	if len(now) > len(c.fds) {
		var names []string
		for fd, target := range now {
			if c.fds[fd] != target {
				names = append(names, fd+" → "+target)
			}
		}
		sort.Strings(names)
		errs = append(errs, fmt.Errorf("%d descriptors, %d before; new: %s", len(now), len(c.fds), strings.Join(names, ", ")))
	}
	if len(errs) == 0 { // goleak is the slow check, it waits by itself
		if err := goleak.Find(c.routines); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// OpenFDs returns the open descriptors of this process with the files they refer to.
func OpenFDs() map[string]string {
	const dir = "/proc/self/fd"
	out := map[string]string{}
	es, err := os.ReadDir(dir)
	if err != nil {
		return out
	}
	for _, e := range es {
		// The descriptor of the listing itself is closed by now and has no target.
		if target, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil {
			out[e.Name()] = target
		}
	}
	return out
}
