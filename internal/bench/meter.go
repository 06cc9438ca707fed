package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"time"
)

// meter reads the processor time of both ranks' processes, all their threads, on rank 0.
// It reads rank 1's by process ID if that is on this host, so that rank 1 need not know
// when the measured phase begins.
type meter struct {
	pids  []int // empty: the time is not known
	begun time.Duration
	ok    bool
}

// process identifies a rank's process.
type process struct {
	Host string `json:"host"` // boot and PID namespace; "" if unknown
	PID  int    `json:"pid"`
}

// newMeter exchanges the ranks' processes. Both ranks call it.
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
	if other.PID != me.PID { // equal where both ranks of a test are in one process
		m.pids = append(m.pids, other.PID)
	}
	return m, nil
}

// start starts the measurement again.
func (m *meter) start() { m.begun, m.ok = m.read() }

// spent returns the time used by both processes since start; false if it is not known.
func (m *meter) spent() (time.Duration, bool) {
	now, ok := m.read()
	return now - m.begun, ok && m.ok
}

func (m *meter) read() (sum time.Duration, ok bool) {
	for _, pid := range m.pids {
		d, err := ProcessTime(pid)
		if err != nil {
			return 0, false
		}
		sum += d
	}
	return sum, len(m.pids) > 0
}

// hostID is the same for two processes with common process IDs.
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
