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
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// nativePossible returns the reason why rdma_rxe cannot be used on this host, or nil. It
// loads the module if it has permission.
func nativePossible() error {
	if os.Geteuid() != 0 {
		return errors.New("native needs root to create the device")
	}
	if isDir("/sys/module/rdma_rxe") {
		return nil
	}
	mp := findProgram("modprobe")
	if mp == "" {
		return errors.New("rdma_rxe is not loaded and there is no modprobe (package kmod)")
	}
	if out, err := exec.Command(mp, "rdma_rxe").CombinedOutput(); err != nil {
		return fmt.Errorf("modprobe rdma_rxe: %s", lastLines(string(out), 1))
	}
	if !isDir("/sys/module/rdma_rxe") {
		return errors.New("rdma_rxe did not load")
	}
	return nil
}

// runNative runs the plan on the host itself. The devices, and with two of them the routing
// rules, exist on the host during the run and are removed afterwards.
func runNative(ctx context.Context, ctl string, plan Plan, stdout, stderr io.Writer) (Result, error) {
	var res Result
	start := time.Now()
	var had syscall.Rlimit
	if syscall.Getrlimit(unix.RLIMIT_MEMLOCK, &had) == nil {
		defer func() { _ = syscall.Setrlimit(unix.RLIMIT_MEMLOCK, &had) }()
	}
	if err := limits(); err != nil {
		return res, err
	}
	topo, err := raise(plan.Topology, 0)
	if err != nil {
		return res, err
	}
	res.Ready = time.Since(start).Seconds()
	of, ef, err := openOutputs(ctl)
	if err != nil {
		return res, errors.Join(err, topo.lower())
	}
	defer of.Close()
	defer ef.Close()
	done := make(chan error, 1)
	go func() {
		var err error
		res.Steps, err = runSteps(ctx, plan, topo, of, ef, nil)
		done <- err
	}()
	out := &follower{path: filepath.Join(ctl, stdoutFile), w: stdout}
	errf := &follower{path: filepath.Join(ctl, stderrFile), w: stderr}
	defer out.close()
	defer errf.close()
	for tick := time.NewTicker(20 * time.Millisecond); ; {
		select {
		case err = <-done:
			tick.Stop()
			return res, errors.Join(err, out.drain(), errf.drain(), topo.lower())
		case <-tick.C:
			if err := errors.Join(out.drain(), errf.drain()); err != nil {
				say("copy output: %v", err)
			}
		}
	}
}

// hostMHz is the host's clock in the form that perftest reads, "" if unknown.
func hostMHz() string {
	b, _ := os.ReadFile("/proc/cpuinfo")
	for _, l := range strings.Split(string(b), "\n") {
		if k, v, ok := strings.Cut(l, ":"); ok && strings.TrimSpace(k) == "cpu MHz" {
			return strings.TrimSpace(v)
		}
	}
	return ""
}
