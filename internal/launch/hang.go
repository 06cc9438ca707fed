package launch

import (
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"
)

const (
	// hangChecks is the number of checks of the ranks' processes in a HangTimeout: a stopped
	// rank is detected at most an eighth later.
	hangChecks = 8

	// minHangCheck is the least time between two checks, each of which reads all of /proc.
	minHangCheck = 20 * time.Millisecond
)

// watch detects ranks that hang. The goroutine of job.run owns it, except for report.
type watch struct {
	limit   time.Duration // 0: none is detected
	every   time.Duration
	last    time.Time // time of the last check
	host    string
	reports chan report
}

// report is one rank's report that another one hangs.
type report struct {
	from, rank int
	why        string
}

func newWatch(limit time.Duration, ranks int) *watch {
	host, err := os.Hostname()
	if err != nil {
		host = "this host"
	}
	return &watch{limit: limit, every: max(limit/hangChecks, minHangCheck), last: time.Now(), host: host, reports: make(chan report, ranks)}
}

// report accepts a rank's report, for wireup.ServerConfig. It drops the report if as many as
// there are ranks are unread.
func (w *watch) report(from, rank int, why string) {
	select {
	case w.reports <- report{from, rank, why}:
	default:
	}
}

// look returns the ranks that have been stopped for the limit. It does not count time in
// which the launcher itself was stopped.
func (w *watch) look(ranks []*rank) (hung []*rank) {
	now := time.Now()
	passed := min(now.Sub(w.last), 2*w.every)
	w.last = now
	states := groupStates()
	for _, r := range ranks {
		was := r.stopped
		r.stopped = !r.ended && slices.Contains(states[r.cmd.Process.Pid], 'T')
		switch {
		case !r.stopped:
			r.silent, r.hung = 0, r.hung && !was // a rank that continues may hang again
		case was && !r.hung:
			if r.silent += passed; r.silent >= w.limit {
				hung = append(hung, r)
			}
		}
	}
	return hung
}

// HungError reports a rank that has made no progress for Spec.HangTimeout.
type HungError struct {
	Rank  int
	Pid   int
	Host  string
	State string // of the processes of its group, one letter each, as in ps(1); empty if not known
	Why   string
}

func (e *HungError) Error() string {
	state := e.State
	if state != "" {
		state = ", state " + state
	}
	return fmt.Sprintf("rank %d (pid %d on %s%s) hangs: %s", e.Rank, e.Pid, e.Host, state, e.Why)
}

// hung records that a rank makes no progress.
func (j *job) hung(r *rank, why string) {
	if j.spec.HangTimeout == 0 || r.ended || r.hung || j.stopping {
		return
	}
	r.hung = true
	pid := r.cmd.Process.Pid
	j.failed(ExitHung, &HungError{Rank: r.no, Pid: pid, Host: j.watch.host, State: string(groupStates()[pid]), Why: why})
}

// endStopped ends a job that has continued without its failed ranks, when all remaining
// ranks hang and are stopped.
func (j *job) endStopped() {
	left := j.running()
	for _, r := range j.ranks {
		if r.hung && r.stopped && !r.ended {
			left--
		}
	}
	if left == 0 && j.running() > 0 && !j.stopping {
		j.spec.Say(fmt.Sprintf("ranks %v are left, which are stopped: ending them", j.alive()))
		j.stop(syscall.SIGTERM)
	}
}
