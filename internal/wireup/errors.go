package wireup

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Sentinels for errors.Is.
var (
	ErrVersion       = errors.New("wire-up protocol versions differ: build all ranks and the launcher from one release")
	ErrToken         = errors.New("wrong job token: RMA_TOKEN must be the same for the server and all ranks")
	ErrSize          = errors.New("job size differs from the server's: RMA_SIZE must be the same everywhere")
	ErrRank          = errors.New("rank outside the job")
	ErrDuplicateRank = errors.New("rank has joined already")
	ErrClosed        = errors.New("wireup: closed")
	ErrServerGone    = errors.New("rendezvous server gone")
	ErrPeerGone      = errors.New("rank is gone")
	ErrTimeout       = errors.New("timed out")
	ErrAborted       = errors.New("job aborted")
	ErrTooLarge      = errors.New("too large for wire-up")
	ErrExists        = errors.New("key is set already")
	ErrProtocol      = errors.New("wire-up protocol error")
	ErrEnvironment   = errors.New("bad job environment")
)

// TimeoutError is a wait that ended without its value. It unwraps to
// ErrTimeout and to context.DeadlineExceeded.
type TimeoutError struct {
	Op      string // "get", "allgather", "barrier"
	Key     string
	Missing []int  // ranks waited for, the first MaxListed of them; nil if the server did not say
	More    int    // how many further ranks are missing
	Detail  string // which of them never joined
}

func (e *TimeoutError) Error() string {
	s := fmt.Sprintf("wireup: %s %q: timed out", e.Op, e.Key)
	if len(e.Missing) > 0 {
		s += " waiting for " + rankList(e.Missing, e.More)
	}
	if e.Detail != "" {
		s += " (" + e.Detail + ")"
	}
	return s
}

// Unwrap returns ErrTimeout and context.DeadlineExceeded.
func (e *TimeoutError) Unwrap() []error { return []error{ErrTimeout, context.DeadlineExceeded} }

// PeerGoneError says that ranks whose value was wanted left or died before
// they gave it. It unwraps to ErrPeerGone.
type PeerGoneError struct {
	Op     string
	Key    string
	Ranks  []int
	Detail string // how it ended, as the server saw it
}

func (e *PeerGoneError) Error() string {
	s := fmt.Sprintf("wireup: %s %q: %s gone", e.Op, e.Key, rankList(e.Ranks, 0))
	if e.Detail != "" {
		s += " (" + e.Detail + ")"
	}
	return s
}

// Unwrap returns ErrPeerGone.
func (e *PeerGoneError) Unwrap() error { return ErrPeerGone }

// AbortError says that a rank (or the launcher: rank -1) ended the job.
// It unwraps to ErrAborted.
type AbortError struct {
	Rank   int
	Reason string
}

func (e *AbortError) Error() string {
	if e.Rank < 0 {
		return "job aborted by the launcher: " + e.Reason
	}
	return fmt.Sprintf("job aborted by rank %d: %s", e.Rank, e.Reason)
}

// Unwrap returns ErrAborted.
func (e *AbortError) Unwrap() error { return ErrAborted }

// MaxListed bounds how many ranks an error names.
const MaxListed = 32

func rankList(ranks []int, more int) string {
	var b strings.Builder
	if len(ranks)+more == 1 {
		b.WriteString("rank ")
	} else {
		b.WriteString("ranks ")
	}
	for i, r := range ranks {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(strconv.Itoa(r))
	}
	if more > 0 {
		fmt.Fprintf(&b, " and %d more", more)
	}
	return b.String()
}
