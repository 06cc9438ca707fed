package host

import (
	"fmt"
	"io"
	"slices"
)

// Status is the result of one check.
type Status string

// Statuses. Warn costs speed or a feature; Fail prevents something for which the machine
// is equipped.
const (
	OK   Status = "ok"
	Warn Status = "warn"
	Fail Status = "fail"
)

// Finding is the outcome of one check.
type Finding struct {
	Check  string `json:"check"`
	Status Status `json:"status"`
	Found  string `json:"found"`         // the state found
	Fix    string `json:"fix,omitempty"` // the remedy, as commands where possible; "" if ok
}

// Diagnose runs all checks.
func Diagnose(s System) []Finding {
	v := s.Verbs()
	var out []Finding
	for _, c := range []struct {
		name string
		run  func(System, Verbs) Finding
	}{
		{"memlock", memlock}, {"rdma", rdma}, {"rdma permissions", permissions}, {"gid", gids},
		{"cma", cma}, {"shared memory", sharedMemory}, {"open files", openFiles},
		{"hugepages", hugepages}, {"socket buffers", socketBuffers}, {"clock source", clockSource},
		{"processors", processors}, {"placement", placement}, {"cpu governor", governor}, {"settings", configured},
	} {
		f := c.run(s, v)
		f.Check = c.name
		if f.Status == OK {
			f.Fix = ""
		}
		out = append(out, f)
	}
	return out
}

// Failed reports whether any check failed.
func Failed(fs []Finding) bool {
	return slices.ContainsFunc(fs, func(f Finding) bool { return f.Status == Fail })
}

// WriteFindings writes the findings for people.
func WriteFindings(w io.Writer, fs []Finding) error {
	for _, f := range fs {
		if _, err := fmt.Fprintf(w, "%-4s  %-16s  %s\n", f.Status, f.Check, f.Found); err != nil {
			return err
		}
		if f.Fix != "" {
			if _, err := fmt.Fprintf(w, "%24s→ %s\n", "", f.Fix); err != nil {
				return err
			}
		}
	}
	return nil
}
