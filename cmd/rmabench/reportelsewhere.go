package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/seed33544411/rma/internal/bench"
	"github.com/seed33544411/rma/internal/bench/report"
)

// elsewhereTail is the number of lines of the log that a failure shows.
const elsewhereTail = 15

// elsewhere measures verbs by the command of --verbs-by, which runs this program on a machine
// with a device, and adds the results to rep. The command's output goes to verbs.log in the
// report's directory, except for lines of progress.
func (f *reportFlags) elsewhere(ctx context.Context, req bench.Request, rep *report.Report, p *progress) error {
	lines, log := filepath.Join(f.out, "verbs.jsonl"), filepath.Join(f.out, "verbs.log")
	left := req.Points() + f.modelSteps()
	defer func() { p.skip(left) }()
	p.note(fmt.Sprintf("verbs by %s, see %s", strings.Fields(f.verbsBy)[0], log))
	if err := f.startElsewhere(ctx, lines, log, func(text string) {
		if left > 0 {
			left--
			p.step(text)
		}
	}); err != nil {
		text, _ := os.ReadFile(log)
		said := strings.Split(strings.TrimSpace(string(text)), "\n")
		return fmt.Errorf("verbs: %s: %w; the end of %s:\n  %s", f.verbsBy, err, log, strings.Join(said[max(0, len(said)-elsewhereTail):], "\n  "))
	}
	return readFile(lines, rep.Add)
}

// startElsewhere runs the command and waits for its end.
func (f *reportFlags) startElsewhere(ctx context.Context, lines, log string, step func(text string)) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if err := os.Remove(lines); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	file, err := os.Create(log)
	if err != nil {
		return err
	}
	defer file.Close()
	argv := append(strings.Fields(f.verbsBy), self, "report", "--fabrics", "verbs", "--format", "json", "--out", lines, "--progress", "all",
		"--tests", strings.Join(f.tests, ","), "--ops", strings.Join(f.ops, ","), "--time", f.time.String(), "--count", strconv.Itoa(f.count),
		"--choice", f.choice, "--choice-budget", f.budget.String(), "--label", f.label, "--validate="+strconv.FormatBool(f.valid), "--pin="+strconv.FormatBool(f.pin))
	if f.sizes != "" {
		argv = append(argv, "--sizes", f.sizes)
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	said, w := io.Pipe()
	cmd.Stdout, cmd.Stderr = file, w
	read := make(chan error, 1)
	go func() { read <- steps(said, file, step) }()
	err = cmd.Run()
	w.Close()
	return errors.Join(err, <-read)
}

var progressLine = regexp.MustCompile(`^\d+/\d+ (.+)$`)

// steps calls step for every line of progress and copies the others to w.
func steps(r io.Reader, w io.Writer, step func(text string)) error {
	in := bufio.NewReader(r)
	for {
		l, err := in.ReadBytes('\n')
		if m := progressLine.FindSubmatch(bytes.TrimRight(l, "\r\n")); m != nil {
			step(string(m[1]))
		} else if _, werr := w.Write(l); werr != nil {
			return werr
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
