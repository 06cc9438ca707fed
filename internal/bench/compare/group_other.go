//go:build !unix

package compare

import "os/exec"

// lead leaves c as it is: it ends alone.
func lead(*exec.Cmd) {}

// sweep has nothing to end.
func sweep(*exec.Cmd) {}
