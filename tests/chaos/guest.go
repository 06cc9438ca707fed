//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// again returns the command that repeats a round.
func (r *round) again(seed uint64) string {
	cmd := fmt.Sprintf("make chaos SEED=%d PARTS=%s ROUND=%d", seed, r.part.name, r.no)
	if os.Getenv("RMA_SOFTROCE") == "qemu" { // this is a guest
		cmd += " VM=qemu"
	}
	return cmd
}

// inGuest runs the campaign in a virtual machine of tests/softroce, and returns its exit
// code.
func inGuest(ctx context.Context, c *campaign, stdout, stderr io.Writer) int {
	self, err := os.Executable()
	if err != nil {
		fmt.Fprintln(stderr, "chaos:", err)
		return 1
	}
	var names []string
	for _, p := range c.parts {
		names = append(names, p.name)
	}
	run := []string{"-vm", c.vm, "-topology", "rails", "-timeout", (c.time + 10*time.Minute).String()}
	args := []string{"--seed", strconv.FormatUint(c.seed, 10), "--time", c.time.String(), "--parts", strings.Join(names, ","), "--round", strconv.Itoa(c.round)}
	if c.json != "" {
		path, err := filepath.Abs(c.json)
		if err != nil {
			fmt.Fprintln(stderr, "chaos:", err)
			return 1
		}
		run, args = append(run, "-out", filepath.Dir(path)), append(args, "--json", path)
	}
	cmd := exec.CommandContext(ctx, "tests/softroce/run", append(append(append(run, "--"), self), args...)...)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	err = cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return exit.ExitCode()
	}
	if err != nil {
		fmt.Fprintln(stderr, "chaos:", err)
		return 1
	}
	return 0
}
