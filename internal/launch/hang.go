package launch

import (
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"
)

const (
	// hangLooks is how often in a HangTimeout the ranks' processes are looked at: a rank
	// that is stopped is found an eighth later at most.
	hangLooks = 8

	// minHangLook is the least time between two looks, which read all of /proc.
	minHangLook = 20 * time.Millisecond
)

// watch finds ranks that hang. The goroutine of job.run owns it, but for hear.
type watch struct {
	limit   time.Duration // 0: nothing is found
	every   time.Duration
	last    time.Time // of the looks
	host    string
	reports chan report
}

// report is what one rank says about another that hangs.
type report struct {
	from, rank int
	why        string
}

func newWatch(limit time.Duration, ranks int) *watch {
	host, err := os.Hostname()
	if err != nil {
		host = "this host"
	}
	return &watch{limit: limit, every: max(limit/hangLooks, minHangLook), last: time.Now(), host: host, reports: make(chan report, ranks)}
}

// hear takes a rank's report, for wireup.ServerConfig. Of those that nobody has read one a
// rank is enough.
func (w *watch) hear(from, rank int, why string) {
	select {
	case w.reports <- report{from, rank, why}:
	default:
	}
}

// look returns the ranks that have been stopped for the limit. A launcher that was itself
// stopped has not looked, and has nothing to say about that time.
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
			r.silent, r.hung = 0, r.hung && !was // it may hang again
		case was && !r.hung:
			if r.silent += passed; r.silent >= w.limit {
				hung = append(hung, r)
			}
		}
	}
	return hung
}

// HungError is a rank that has made no progress for Spec.HangTimeout.
type HungError struct {
	Rank  int
	Pid   int
	Host  string
	State string // of the processes of its group, a letter each, as ps(1) has them; empty if not known
	Why   string
}

func (e *HungError) Error() string {
	state := e.State
	if state != "" {
		state = ", state " + state
	}
	return fmt.Sprintf("rank %d (pid %d on %s%s) hangs: %s", e.Rank, e.Pid, e.Host, state, e.Why)
}

// hung books a rank that makes no progress.
func (j *job) hung(r *rank, why string) {
	if j.spec.HangTimeout == 0 || r.ended || r.hung || j.stopping {
		return
	}
	r.hung = true
	pid := r.cmd.Process.Pid
	j.failed(ExitHung, &HungError{Rank: r.no, Pid: pid, Host: j.watch.host, State: string(groupStates()[pid]), Why: why})
}

// endStopped ends what is left of a job that went on without its failed ranks, if that is
// ranks that hang and are stopped: nobody waits for them any more.
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
