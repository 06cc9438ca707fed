//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// meter measures one comparison at a time on one device.
type meter struct {
	dev, addr, gid string
	iters          func(comparison) int
	benchTime      time.Duration
	ours           string
	port           int
}

func newMeter(kind, ours string) (*meter, error) {
	m := &meter{
		dev:  strings.Split(os.Getenv("RMA_SOFTROCE_DEVICES"), ",")[0],
		addr: strings.Split(os.Getenv("RMA_SOFTROCE_ADDRS"), ",")[0],
		ours: ours, port: 20000, benchTime: 300 * time.Millisecond,
	}
	// a fraction of a second each: emulation is ten times slower
	scale := 3
	if kind == "qemu" {
		scale = 1
	}
	m.iters = func(c comparison) int {
		n := map[bool]int{true: 1000, false: 2000}[c.latency()]
		if c.size > 4096 {
			n = map[bool]int{true: 60, false: 200}[c.latency()]
		}
		return n * scale
	}
	for i := range 16 {
		b, _ := os.ReadFile(filepath.Join("/sys/class/infiniband", m.dev, "ports/1/gids", strconv.Itoa(i)))
		if strings.TrimSpace(string(b)) == mappedGID(m.addr) {
			m.gid = strconv.Itoa(i)
			return m, nil
		}
	}
	return nil, fmt.Errorf("%s has no GID for %s", m.dev, m.addr)
}

// measure takes one sample; flip changes the order of the two programs, so that a drift of
// the machine favours neither.
func (m *meter) measure(ctx context.Context, c comparison, flip bool) (s sample, err error) {
	parts := []func() error{
		func() error {
			for range 5 {
				if s.theirs, err = m.perftest(ctx, c); !errors.Is(err, errNoClock) && !errors.Is(err, errStuck) {
					break
				}
				fmt.Fprintf(os.Stderr, "%v; once more\n", err)
			}
			return err
		},
		func() error { s.ours, err = m.rmabench(ctx, c); return err },
	}
	if flip {
		parts[0], parts[1] = parts[1], parts[0]
	}
	for _, p := range parts {
		if err := p(); err != nil {
			return s, err
		}
	}
	return s, nil
}

// errStuck is perftest's failure on one CPU when both its sides spin for each other: they
// never yield, and each step takes a timer tick.
var errStuck = errors.New("its two sides spin for each other's CPU; on an idle host they rarely do")

// perftest runs both sides of one of Debian's programs.
func (m *meter) perftest(ctx context.Context, c comparison) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	m.port++
	port := strconv.Itoa(m.port)
	args := []string{"-d", m.dev, "-x", m.gid, "-F", "-p", port, "-s", strconv.Itoa(c.size), "-n", strconv.Itoa(m.iters(c))}
	var serverOut bytes.Buffer
	server := exec.CommandContext(ctx, c.tool, args...)
	server.Stdout, server.Stderr = &serverOut, &serverOut
	if err := server.Start(); err != nil {
		return 0, err
	}
	served := make(chan error, 1)
	go func() { served <- server.Wait() }()
	if err := poll(20*time.Second, c.tool+" does not listen", func() bool { return listening(m.port) }); err != nil {
		cancel()
		<-served
		return 0, fmt.Errorf("%w:\n%s", err, lastLines(serverOut.String(), 5))
	}
	out, err := exec.CommandContext(ctx, c.tool, append(args, m.addr)...).CombinedOutput()
	if err != nil {
		if ctx.Err() != nil {
			err = errStuck
		}
		cancel()
		<-served
		return 0, fmt.Errorf("%s: %w:\n%s", c.tool, err, lastLines(string(out), 5))
	}
	if err := <-served; err != nil {
		return 0, fmt.Errorf("%s, server: %w:\n%s", c.tool, err, lastLines(serverOut.String(), 5))
	}
	return parsePerftest(string(out), c)
}

// rmabench runs rmabench, which starts its two ranks itself.
func (m *meter) rmabench(ctx context.Context, c comparison) (float64, error) {
	if m.ours == "" {
		return 0, nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, m.ours, c.test, "--fabric", "verbs", "--op", c.op,
		"--sizes", strconv.Itoa(c.size), "--time", m.benchTime.String(), "--format", "json")
	cmd.Env = append(os.Environ(), "RMA_IBV_DEVICE="+m.dev)
	var errb bytes.Buffer
	cmd.Stderr = &errb
	out, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("rmabench: %w:\n%s", err, lastLines(errb.String(), 8))
	}
	return parseRmabench(string(out), c)
}

// listening reads from the kernel's table whether a process listens on a TCP port: perftest
// would take a connection for its peer.
func listening(port int) bool {
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		b, _ := os.ReadFile(table)
		if listens(string(b), port) {
			return true
		}
	}
	return false
}

func listens(table string, port int) bool {
	want := fmt.Sprintf(":%04X", port)
	for _, l := range strings.Split(table, "\n") {
		f := strings.Fields(l)
		if len(f) > 3 && strings.HasSuffix(f[1], want) && f[3] == "0A" { // LISTEN
			return true
		}
	}
	return false
}
