package wireup

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Sentinels for errors.Is.
var (
	ErrVersion       = errors.New("wire-up protocol versions differ: build all ranks and the launcher from one release")
	ErrToken         = errors.New("wrong job token: RMA_TOKEN must be the same for the server and all ranks")
	ErrSize          = errors.New("job size differs from the server's: RMA_SIZE must be the same everywhere")
	ErrRank          = errors.New("rank outside the job")
	ErrDuplicateRank = errors.New("rank has joined already: each process of the job needs an RMA_RANK of its own, and each job a server of its own")
	ErrClosed        = errors.New("wireup: closed")
	ErrServerGone    = errors.New("wire-up server gone")
	ErrPeerGone      = errors.New("rank is gone")
	ErrTimeout       = errors.New("timed out")
	ErrAborted       = errors.New("job aborted")
	ErrTooLarge      = errors.New("too large for wire-up")
	ErrExists        = errors.New("key is set already")
	ErrProtocol      = errors.New("wire-up protocol error")
	ErrEnvironment   = errors.New("bad job environment")
	ErrGivenUp       = errors.New("given up")
	ErrUndecided     = errors.New("no answer from the wire-up server whether all ranks have called it: call it again")
)

// TimeoutError reports a wait that ended without its value. It unwraps to ErrTimeout and to
// context.DeadlineExceeded.
type TimeoutError struct {
	Op      string // "get", "allgather", "barrier"
	Key     string
	After   time.Duration // duration of the wait
	Missing []int         // missing ranks, the first MaxListed of them; nil if the server has not listed them
	More    int           // number of further missing ranks
	Detail  string        // the missing ranks, and whether they have joined
}

func (e *TimeoutError) Error() string {
	return fmt.Sprintf("wireup: %s %q: timed out: after %v %s", e.Op, e.Key, rounded(e.After), e.Detail)
}

// take records the server's list of missing ranks.
func (e *TimeoutError) take(m message) {
	e.Missing, e.More, e.Detail = m.listed(), int(m.size), m.text
}

// rounded returns d with two or three digits.
func rounded(d time.Duration) time.Duration {
	for unit := time.Second; unit > time.Nanosecond; unit /= 1000 {
		if d >= unit {
			return d.Round(unit / 10)
		}
	}
	return d
}

// Unwrap returns ErrTimeout and context.DeadlineExceeded.
func (e *TimeoutError) Unwrap() []error { return []error{ErrTimeout, context.DeadlineExceeded} }

// PeerGoneError means that ranks left or died before they published an awaited value. It
// unwraps to ErrPeerGone.
type PeerGoneError struct {
	Op     string
	Key    string
	Ranks  []int
	Detail string // how the first of them ended, as seen by the server
}

func (e *PeerGoneError) Error() string {
	s := fmt.Sprintf("wireup: %s %q: %s gone", e.Op, e.Key, rankList(e.Ranks))
	switch {
	case e.Detail != "" && len(e.Ranks) > 1:
		s += fmt.Sprintf(" (rank %d: %s)", e.Ranks[0], e.Detail)
	case e.Detail != "":
		s += " (" + e.Detail + ")"
	}
	return s
}

// Unwrap returns ErrPeerGone.
func (e *PeerGoneError) Unwrap() error { return ErrPeerGone }

// GivenUpError means that a rank has given up an exchange of all ranks, which therefore
// failed on all of them. It unwraps to ErrGivenUp, and to Err.
type GivenUpError struct {
	Op     string
	Key    string
	Rank   int    // the rank that has given up
	Detail string // the ranks that it had waited for
	Err    error  // if this rank has given up as well: a *TimeoutError or the context's error

	own bool // it was this rank
}

func (e *GivenUpError) Error() string {
	if e.own {
		return e.Err.Error()
	}
	return fmt.Sprintf("wireup: %s %q: rank %d has given up: %s", e.Op, e.Key, e.Rank, e.Detail)
}

// Unwrap returns ErrGivenUp, and Err if there is one.
func (e *GivenUpError) Unwrap() []error {
	if e.Err == nil {
		return []error{ErrGivenUp}
	}
	return []error{ErrGivenUp, e.Err}
}

// AbortError means that a rank (or the launcher: rank -1) has aborted the job. It unwraps
// to ErrAborted.
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

// MaxListed bounds the ranks, or ranges of ranks, in an error.
const MaxListed = 32

// rankList formats ranks, which are sorted, with ranges for consecutive ones: "ranks 3,
// 7-12".
func rankList(ranks []int) string {
	var b strings.Builder
	if len(ranks) == 1 {
		b.WriteString("rank ")
	} else {
		b.WriteString("ranks ")
	}
	for i, runs := 0, 0; i < len(ranks); runs++ {
		end := i
		for end+1 < len(ranks) && ranks[end+1] == ranks[end]+1 {
			end++
		}
		if runs == MaxListed {
			fmt.Fprintf(&b, " and %d more", len(ranks)-i)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(strconv.Itoa(ranks[i]))
		switch {
		case end == i+1:
			fmt.Fprintf(&b, ", %d", ranks[end])
		case end > i:
			fmt.Fprintf(&b, "-%d", ranks[end])
		}
		i = end + 1
	}
	return b.String()
}

// have returns the verb for a number of ranks.
func have(ranks []int) string {
	if len(ranks) == 1 {
		return "has"
	}
	return "have"
}
