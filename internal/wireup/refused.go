package wireup

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math/bits"
	"net"
	"os"
	"slices"
	"strings"
)

// refused counts connections that were not admitted, by the reason.
type refused map[string]int

// refusals are the reasons, the first that fits.
var refusals = []struct {
	err  error
	text string
}{
	{ErrToken, "wrong token"}, {ErrVersion, "another version"}, {ErrSize, "another job size"}, {ErrRank, "rank outside the job"},
	{ErrDuplicateRank, "rank joined already"}, {ErrUser, "another user's process"}, {ErrTLS, "bad certificate or no TLS"},
	{os.ErrDeadlineExceeded, "silent"}, {io.EOF, "silent"}, {io.ErrUnexpectedEOF, "hung up"}, {net.ErrClosed, "too many at once"},
	{ErrServerGone, "job ended"}, {ErrProtocol, "not a rank"},
}

// note counts a connection, and reports whether it is to be logged: the first, the
// second, the fourth and so on of each reason.
func (r refused) note(err error) (text string, n int, tell bool) {
	text = "broken connection"
	for _, x := range refusals {
		if errors.Is(err, x.err) {
			text = x.text
			break
		}
	}
	r[text]++
	n = r[text]
	return text, n, bits.OnesCount(uint(n)) == 1
}

// String is a sentence for those who wait for ranks that have not joined; empty if
// nobody was refused.
func (r refused) String() string {
	if len(r) == 0 {
		return ""
	}
	total, parts := 0, []string(nil)
	texts := slices.Sorted(maps.Keys(r))
	slices.SortStableFunc(texts, func(a, b string) int { return r[b] - r[a] })
	for _, text := range texts {
		total += r[text]
		parts = append(parts, fmt.Sprintf("%s (%d)", text, r[text]))
	}
	were := "connections were"
	if total == 1 {
		were = "connection was"
	}
	return fmt.Sprintf("%d %s refused: %s", total, were, strings.Join(parts, ", "))
}
