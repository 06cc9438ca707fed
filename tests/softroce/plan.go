//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// Names of the files in the control directory, which host and guest share.
const (
	planFile   = "plan.json"
	resultFile = "result.json"
	stdoutFile = "stdout"
	stderrFile = "stderr"
)

// ctlMount is the control directory's path for the guest's programs.
const ctlMount = "/run/softroce"

// harnessFailure is the exit code for a failure of the harness rather than the program:
// 125, as in timeout(1), docker and git bisect.
const harnessFailure = 125

// timedOutCode is the exit code of a step whose own time ran out, as in timeout(1).
const timedOutCode = 124

// Plan holds all parameters of a guest. The host writes it before the guest starts and
// never changes it.
type Plan struct {
	Kind     string   // native, qemu or uml: what the guest is
	Topology string   // one, two, rails or guests
	Node     int      // which of Nodes this guest is
	Nodes    int      // 1, or 2 if Topology is guests
	Netem    string   // tc netem arguments for every step, or ""
	Dir      string   // working directory
	Out      string   // the one writable directory, same path as on the host, or ""
	Env      []string // environment of every step
	CPUMHz   string   // for guests whose /proc/cpuinfo has no clock line
	Steps    []Step
}

// Step is one program run by the guest. Steps run one after another; no process of a step
// lives on into the next.
type Step struct {
	Name    string   // shown before the step; "" for the single step of run
	Notes   []string // shown behind the name
	Argv    []string
	Dir     string   // "" means the plan's
	Env     []string // added to the plan's
	Netem   string   // "" means the plan's
	Rates   []int64  // of the wires of rails or guests, in bytes a second; nil: as before
	Timeout time.Duration
}

// Result is written by a guest at its end.
type Result struct {
	Error string // harness failure inside the guest, "" if none
	Steps []StepResult
	Ready float64 // seconds from power-on to RDMA devices up
}

// StepResult is the outcome of one step.
type StepResult struct {
	Name    string
	Code    int   // exit code; 128+n for signal n; 124 for its time-out
	Wire    int64 // bytes received over the wire during the step
	Seconds float64
}

// Code returns the first step code that is not zero, or harnessFailure if the guest itself
// failed or ran nothing.
func (r Result) Code() int {
	if r.Error != "" || len(r.Steps) == 0 {
		return harnessFailure
	}
	for _, s := range r.Steps {
		if s.Code != 0 {
			return s.Code
		}
	}
	return 0
}

// writeJSON makes v appear under path complete: it writes to another file, then renames it.
func writeJSON(path string, v any) error {
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = pushOut(f)
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// readJSON returns false, nil as long as path does not exist.
func readJSON(path string, v any) (bool, error) {
	b, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return false, fmt.Errorf("read %s: %w", path, err)
	}
	return true, nil
}
