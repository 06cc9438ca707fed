package testutil

import (
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The last lines of the report are the calls of the tests that hang: here of this one.
func TestReportHang(t *testing.T) {
	t.Parallel()
	ctx := Context(t, Limit)
	t.Run("held", func(t *testing.T) {
		here := regexp.MustCompile(`(?m)^goroutine \d+ \[chan receive.*\]:\n\tgithub\.com/seed33544411/rma/internal/testutil\.TestReportHang\.func1 \S+hang_test\.go:\d+$`)
		report := make(chan string, 1)
		go func() {
			for ; ; runtime.Gosched() { // the test may not wait yet
				var out strings.Builder
				reportHang(&out, stacks())
				_, last, _ := strings.Cut(out.String(), "these tests run:\n")
				if here.MatchString(last) || ctx.Err() != nil {
					report <- last
					return
				}
			}
		}()
		last := <-report
		require.Regexp(t, here, last)
		require.NotContains(t, last, "tRunner")
		require.NotContains(t, last, "testutil.TestReportHang /") // which waits for this one
	})
}
