package testutil

import (
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime"
	"strings"
	"time"
)

// watchHangs ends the process shortly before go test's own limit does. Both print the stacks of all
// goroutines; of a job of engines these are thousands of lines, of which a log may keep the last. Here
// the last are those of the tests. Neither limits benchmarks and fuzzing.
func watchHangs() {
	for _, f := range []string{"test.bench", "test.fuzz"} { // a worker of the latter has it, too
		if flag.Lookup(f).Value.String() != "" {
			return
		}
	}
	limit, ok := flag.Lookup("test.timeout").Value.(flag.Getter).Get().(time.Duration)
	if !ok || limit <= 0 {
		return
	}
	time.AfterFunc(limit-limit/20, func() {
		reportHang(os.Stderr, stacks())
		os.Exit(2)
	})
}

// stacks returns the stacks of all goroutines.
func stacks() string {
	for buf := make([]byte, 1<<20); ; buf = make([]byte, 2*len(buf)) {
		if n := runtime.Stack(buf, true); n < len(buf) {
			return string(buf[:n])
		}
	}
}

// frame is a call in a stack: its function and, on the next line, where that is.
var frame = regexp.MustCompile(`(?m)^([^\s].*)\([^()]*\)\n\t(.*?)( \+0x[0-9a-f]+)?$`)

// reportHang writes the stacks of all goroutines, and then, a line for each call, those of tests that
// neither wait for their subtests nor for their turn.
func reportHang(w io.Writer, all string) {
	fmt.Fprintf(w, "%s\n\nhang: the test binary has run for 95 %% of its -timeout; these tests run:\n", all)
	for _, g := range strings.Split(all, "\n\n") {
		if !strings.Contains(g, "testing.tRunner(") || strings.Contains(g, "testing.(*T).Run(") || strings.Contains(g, "testing.(*T).Parallel(") {
			continue
		}
		head, _, _ := strings.Cut(g, "\n")
		fmt.Fprintln(w, head)
		for _, f := range frame.FindAllStringSubmatch(g, -1) {
			if !strings.HasPrefix(f[1], "runtime.") && !strings.HasPrefix(f[1], "testing.tRunner") {
				fmt.Fprintf(w, "\t%s %s\n", f[1], f[2])
			}
		}
	}
}
