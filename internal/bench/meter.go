package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"time"
)

// meter reads the processor time of both ranks' processes, all threads of them, from
// rank 0: of rank 1's by its number, where it is on this host. Rank 1 need not know
// when the measured phase begins.
type meter struct {
	pids  []int // empty: the time is not known
	begun time.Duration
	ok    bool
}

// process is how a rank is told apart from others.
type process struct {
	Host string `json:"host"` // boot and space of process numbers; "" if it cannot be told
	PID  int    `json:"pid"`
}

// newMeter exchanges who the ranks are. Both call it.
func newMeter(ctx context.Context, ctl Control) (*meter, error) {
	me := process{hostID(), os.Getpid()}
	b, err := json.Marshal(me)
	if err != nil {
		return nil, err
	}
	if b, err = ctl.Exchange(ctx, b); err != nil {
		return nil, err
	}
	var other process
	m := &meter{}
	if json.Unmarshal(b, &other) != nil || me.Host == "" || other.Host != me.Host || other.PID <= 0 {
		return m, nil //nolint:nilerr // then the time is not known
	}
	m.pids = []int{me.PID}
	if other.PID != me.PID { // ranks of a test
		m.pids = append(m.pids, other.PID)
	}
	return m, nil
}

// start begins anew.
func (m *meter) start() { m.begun, m.ok = m.read() }

// spent is what both have used since start; false if that is not known.
func (m *meter) spent() (time.Duration, bool) {
	now, ok := m.read()
	return now - m.begun, ok && m.ok
}

func (m *meter) read() (sum time.Duration, ok bool) {
	for _, pid := range m.pids {
		d, err := processTime(pid)
		if err != nil {
			return 0, false
		}
		sum += d
	}
	return sum, len(m.pids) > 0
}

// hostID is the same for two processes that know each other by their numbers.
func hostID() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	space, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(boot)) + " " + space
}
