package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/cwriter"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/seed33544411/rma/internal/bench"
)

// sink writes results to standard output, or to a file that appears completely or not at
// all.
type sink struct {
	bench.Writer
	w    io.Writer // the underlying writer
	tmp  *os.File  // nil: standard output
	path string    // that tmp gets at the end; empty: it has its name
}

// newSink prepares the output before the measurement, so that a path that cannot be written
// fails early.
func newSink(stdout io.Writer, format, path string) (*sink, error) {
	k, w := &sink{}, stdout
	var err error
	if path != "" {
		if k, err = openFile(path); err != nil {
			return nil, fmt.Errorf("--out: %w", err)
		}
		w = k.tmp
	}
	k.w = w
	if k.Writer, err = bench.NewWriter(w, format); err != nil {
		k.discard()
		return nil, usage(err)
	}
	return k, nil
}

// openFile returns the sink of a file: a temporary one in the directory of path, with the
// permissions of any other new file. A device or a pipe is written itself, because a file would take
// its place, as root in /dev even; and so is the file that a link leads to.
func openFile(path string) (*sink, error) {
	st, err := os.Stat(path)
	switch {
	case err == nil && st.IsDir():
		return nil, fmt.Errorf("%s is a directory", path)
	case err == nil && !st.Mode().IsRegular():
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		return &sink{tmp: f}, err
	}
	if to, err := filepath.EvalSymlinks(path); err == nil {
		path = to
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		var at *os.PathError
		if errors.As(err, &at) {
			at.Path = path // not the temporary name
		}
		return nil, err
	}
	return &sink{tmp: f, path: path}, f.Chmod(0o644)
}

// commit renames the temporary file to its final name.
func (k *sink) commit() error {
	if k.tmp == nil {
		return nil
	}
	if k.path == "" {
		err := k.tmp.Close()
		k.tmp = nil
		return err
	}
	err := errors.Join(k.tmp.Sync(), k.tmp.Close())
	if err == nil {
		err = os.Rename(k.tmp.Name(), k.path)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(k.tmp.Name()))
	}
	k.tmp = nil
	return err
}

// discard removes the temporary file. After commit it does nothing.
func (k *sink) discard() {
	if k.tmp != nil {
		k.tmp.Close()
		if k.path != "" {
			os.Remove(k.tmp.Name())
		}
		k.tmp = nil
	}
}

// writePage writes the page of --html, if a file is named.
func writePage(path string, write func(w io.Writer) error) error {
	if path == "" {
		return nil
	}
	var page bytes.Buffer
	err := write(&page)
	if err == nil {
		err = writeFile(path, page.Bytes())
	}
	if err != nil {
		return fmt.Errorf("--html: %w", err)
	}
	return nil
}

// writeFile writes a file completely or not at all.
func writeFile(path string, b []byte) error {
	k, err := openFile(path)
	if err != nil {
		return err
	}
	defer k.discard()
	if _, err := k.tmp.Write(b); err != nil {
		return err
	}
	return k.commit()
}

// writable returns an error if a command cannot write the files of --out and --html: before it
// measures. In a job, rank 0 writes them.
func writable(fl *pflag.FlagSet) error {
	if showsNothing() {
		return nil
	}
	value := func(name string) string {
		if f := fl.Lookup(name); f != nil {
			return f.Value.String()
		}
		return ""
	}
	for _, name := range []string{"out", "html"} {
		path := value(name)
		if path == "" || name == "out" && value("format") == "html" { // see outDir
			continue
		}
		if err := creatable(path); err != nil {
			return fmt.Errorf("--%s: %w", name, err)
		}
	}
	if out, page := value("out"), value("html"); out != "" && page != "" && sameFile(out, page) {
		return usage(errors.New("--out and --html: want two files, as the page would replace the results"))
	}
	return nil
}

// sameFile reports whether two paths lead to one file, which need not exist.
func sameFile(a, b string) bool {
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	if errX == nil && errY == nil {
		return os.SameFile(x, y)
	}
	a, errX = filepath.Abs(a)
	b, errY = filepath.Abs(b)
	return errX == nil && errY == nil && a == b
}

// creatable returns an error if the file at path cannot be written.
func creatable(path string) error {
	if st, err := os.Stat(path); err == nil && !st.IsDir() && !st.Mode().IsRegular() {
		return nil // a pipe ends for its reader when it is closed
	}
	k, err := openFile(path)
	if err == nil {
		k.discard()
	}
	return err
}

// outDir makes the directory of --format html, out by default, and returns an error if its page
// cannot be written.
func outDir(dir, page string) (string, error) {
	dir = cmp.Or(dir, "out")
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		err = creatable(filepath.Join(dir, page))
	}
	if err != nil {
		err = fmt.Errorf("--out: %w", err)
	}
	return dir, err
}

// outFlags are the flags of what a command writes.
type outFlags struct {
	format, out string
	quiet       bool
}

// flags defines --format, --out and --quiet.
func (o *outFlags) flags(fl *pflag.FlagSet, formats string) {
	o.fileFlags(fl, formats)
	o.quietFlag(fl)
}

func (o *outFlags) fileFlags(fl *pflag.FlagSet, formats string) {
	fl.StringVar(&o.format, "format", "table", formats)
	fl.StringVar(&o.out, "out", "", "write results to this file instead of standard output, at the end")
}

func (o *outFlags) quietFlag(fl *pflag.FlagSet) {
	fl.BoolVarP(&o.quiet, "quiet", "q", false, "no progress on standard error")
}

// check refuses other formats.
func (o *outFlags) check(formats []string) error {
	if !slices.Contains(formats, o.format) {
		return fmt.Errorf("--format %q: want %s", o.format, strings.Join(formats, ", "))
	}
	return nil
}

// bar returns where progress is shown, nil if nowhere.
func (o *outFlags) bar(s streams) io.Writer {
	if o.quiet {
		return nil
	}
	return s.err
}

// barBeside is bar for results that are written as they arrive, which show the progress on a
// terminal themselves.
func (o *outFlags) barBeside(s streams) io.Writer {
	if o.out == "" && !isTerminal(s.err) {
		return nil
	}
	return o.bar(s)
}

// rowFormats are the formats of writeRows.
var rowFormats = []string{"table", "json"}

// writeRows writes results as JSON lines, or for people by table.
func writeRows[T any](o *outFlags, s streams, rows []T, table func(io.Writer, []T) error) error {
	out, commit := o.output(s)
	if o.format == "json" {
		table = bench.WriteLines[T]
	}
	return errors.Join(table(out, rows), commit())
}

// writeOne writes x as JSON, or for people by text.
func (o *outFlags) writeOne(s streams, x any, text func(io.Writer) error) error {
	out, commit := o.output(s)
	if o.format == "json" {
		return errors.Join(json.NewEncoder(out).Encode(x), commit())
	}
	return errors.Join(text(out), commit())
}

// output returns standard output, or a buffer that commit writes to the file of --out.
func (o *outFlags) output(s streams) (w io.Writer, commit func() error) {
	if o.out == "" {
		return s.out, func() error { return nil }
	}
	var b bytes.Buffer
	return &b, func() error { return o.file(b.Bytes()) }
}

// file writes the file of --out.
func (o *outFlags) file(b []byte) error {
	if err := writeFile(o.out, b); err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	return nil
}

// gather measures, and returns the results. It shows the progress over total of them on bar;
// text describes one.
func gather[R any](bar io.Writer, total int, text func(*R) string, measure func(emit func(R) error) error) (rs []R, err error) {
	p := newProgress(bar, total)
	err = measure(func(r R) error {
		p.step(text(&r))
		rs = append(rs, r)
		return nil
	})
	p.close(err == nil)
	return rs, err
}

// isTerminal reports whether w is a terminal.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	return cwriter.IsTerminal(int(f.Fd()))
}

// progressEvery is the interval of progress lines on other outputs than terminals.
const progressEvery = 10 * time.Second

// progress shows the progress of a run: as a bar on a terminal, else as occasional lines.
type progress struct {
	w     io.Writer
	box   *mpb.Progress
	bar   *mpb.Bar
	n     int
	total int
	text  string
	start time.Time
	shown time.Time
	all   bool // a line for each point, for programs
}

// newProgress shows progress over total points on w; if w is nil, it shows nothing.
func newProgress(w io.Writer, total int) *progress {
	p := &progress{w: w, total: total, start: time.Now()}
	if w != nil && isTerminal(w) {
		p.box = mpb.New(mpb.WithOutput(w), mpb.WithWidth(48))
		p.bar = p.box.AddBar(int64(total),
			mpb.PrependDecorators(decor.CountersNoUnit("%3d / %d "), decor.Percentage(decor.WC{W: 5})),
			mpb.AppendDecorators(decor.AverageETA(decor.ET_STYLE_MMSS), decor.Any(func(decor.Statistics) string { return "  " + p.text })))
	}
	return p
}

// pointText describes a result of lat, bw and rate.
func pointText(r *bench.Result) string {
	return fmt.Sprintf("%s %s %s %s", r.Fabric, r.Test, r.Op, bench.FormatSize(r.Size))
}

// step counts a completed point, described by text.
func (p *progress) step(text string) {
	p.text = text
	p.done()
}

// done counts a completed point, described by p.text.
func (p *progress) done() {
	p.n++
	switch {
	case p.bar != nil:
		p.bar.Increment()
	case p.w != nil && p.all:
		fmt.Fprintf(p.w, "%d/%d %s\n", p.n, p.total, p.text)
	case p.w != nil && (p.n == p.total || time.Since(p.shown) >= progressEvery):
		p.shown = time.Now()
		left := time.Duration(float64(time.Since(p.start)) / float64(p.n) * float64(p.total-p.n))
		fmt.Fprintf(p.w, "%d/%d (%d %%), about %v left: %s\n", p.n, p.total, 100*p.n/p.total, left.Round(time.Second), p.text)
	}
}

// note shows the current activity if it precedes the next point for long.
func (p *progress) note(text string) {
	p.text = text
	if p.bar == nil && p.w != nil {
		fmt.Fprintf(p.w, "%d/%d (%d %%): %s\n", p.n, p.total, 100*p.n/p.total, text)
	}
}

// skip counts points that will not be measured.
func (p *progress) skip(n int) {
	p.n += n
	if p.bar != nil {
		p.bar.IncrBy(n)
	}
}

// close ends the display; ok reports whether everything was measured.
func (p *progress) close(ok bool) {
	if p.bar == nil {
		return
	}
	if !ok || p.n < p.total {
		p.bar.Abort(false)
	}
	p.box.Wait()
}

// readFile reads a file by read; its errors contain the file's name.
func readFile(name string, read func(io.Reader) error) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := read(f); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// addLines returns the results of files of JSON lines, those of --add.
func addLines[T any](names []string, read func(io.Reader) ([]T, error)) (rs []T, err error) {
	for _, name := range names {
		err := readFile(name, func(r io.Reader) error {
			more, err := read(r)
			rs = append(rs, more...)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("--add: %w", err)
		}
	}
	return rs, nil
}
