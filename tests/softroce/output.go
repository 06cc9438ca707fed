//go:build linux

package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// say prints one line of the harness itself on standard error.
func say(format string, a ...any) {
	fmt.Fprintf(os.Stderr, "softroce: "+format+"\n", a...)
}

// follower copies a file that another process appends to, each time from the end of the
// previous copy.
type follower struct {
	path string
	f    *os.File
	w    io.Writer
}

// drain copies the data appended since the last call. A missing file counts as empty.
func (t *follower) drain() error {
	if t.f == nil {
		f, err := os.Open(t.path)
		if os.IsNotExist(err) {
			return nil
		}
		if err != nil {
			return err
		}
		t.f = f
	}
	_, err := io.Copy(t.w, t.f)
	return err
}

func (t *follower) close() {
	if t.f != nil {
		t.f.Close()
	}
}

// prefixer puts a prefix before every line. It writes whole lines to w at once; mu keeps
// several prefixers on one w from mixing lines.
type prefixer struct {
	w      io.Writer
	mu     *sync.Mutex
	prefix string
	part   []byte
}

func (p *prefixer) Write(b []byte) (int, error) {
	p.part = append(p.part, b...)
	end := bytes.LastIndexByte(p.part, '\n')
	if end < 0 {
		return len(b), nil
	}
	err := p.emit(p.part[:end+1])
	p.part = append(p.part[:0], p.part[end+1:]...)
	return len(b), err
}

func (p *prefixer) emit(lines []byte) error {
	var out bytes.Buffer
	for _, l := range bytes.SplitAfter(lines, []byte("\n")) {
		if len(l) > 0 {
			out.WriteString(p.prefix)
			out.Write(l)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	_, err := p.w.Write(out.Bytes())
	return err
}

// flush writes an unfinished last line.
func (p *prefixer) flush() {
	if len(p.part) > 0 {
		p.emit(append(p.part, '\n'))
		p.part = nil
	}
}

// tailOf returns the last lines of a file, for failure reports.
func tailOf(path string, n int) string {
	b, err := os.ReadFile(path)
	if err != nil || len(bytes.TrimSpace(b)) == 0 {
		return ""
	}
	return fmt.Sprintf("--- end of %s\n%s\n", filepath.Base(path), lastLines(string(b), n))
}

// resultLines passes output on and keeps the lines that are results in JSON, without the prefix of
// a guest.
type resultLines struct {
	out   io.Writer
	rest  string
	lines []string
}

func (r *resultLines) Write(b []byte) (int, error) {
	all := strings.SplitAfter(r.rest+string(b), "\n")
	r.rest = all[len(all)-1]
	for _, l := range all[:len(all)-1] {
		if l = strings.TrimPrefix(l, "0| "); strings.HasPrefix(l, "{") {
			r.lines = append(r.lines, l)
		}
	}
	return r.out.Write(b)
}

// write writes the results to a file in dir; "" is none.
func (r *resultLines) write(dir, name string) error {
	if dir == "" {
		return nil
	}
	return os.WriteFile(filepath.Join(dir, name), []byte(strings.Join(r.lines, "")), 0o644)
}
