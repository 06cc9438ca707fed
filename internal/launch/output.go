package launch

import (
	"bytes"
	"io"
	"strconv"
	"sync"
	"time"
)

// maxLine bounds the buffered part of an unfinished line; a longer line is split.
const maxLine = 1 << 20

// output serialises what the ranks write to destinations that they share. Who writes gets no
// error: a rank whose output is not read any longer would be killed by SIGPIPE.
type output struct {
	mu   sync.Mutex
	lost chan error // the first error of a destination
}

func newOutput() *output { return &output{lost: make(chan error, 1)} }

func (o *output) write(to io.Writer, p []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, err := to.Write(p); err != nil {
		select {
		case o.lost <- err:
		default:
		}
	}
}

// lineWriter forwards whole lines, each behind the rank's tag, in one write: lines of
// different ranks do not mix. Write is for one goroutine.
type lineWriter struct {
	all *output
	to  io.Writer
	tag []byte
	buf []byte // an unfinished line
	out []byte
}

func newLineWriter(all *output, to io.Writer, rank int) *lineWriter {
	return &lineWriter{all: all, to: to, tag: []byte("[" + strconv.Itoa(rank) + "] ")}
}

func (w *lineWriter) Write(p []byte) (int, error) {
	n := len(p)
	w.out = w.out[:0]
	for len(p) > 0 {
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			w.buf = append(w.buf, p...)
			if len(w.buf) < maxLine {
				break
			}
			p = []byte{'\n'}
			continue
		}
		w.out = append(w.out, w.tag...)
		w.out = append(w.out, w.buf...)
		w.out = append(w.out, p[:i+1]...)
		w.buf, p = w.buf[:0], p[i+1:]
	}
	if len(w.out) > 0 {
		w.all.write(w.to, w.out)
	}
	return n, nil
}

// flush forwards the last line if the process has not ended it.
func (w *lineWriter) flush() {
	if len(w.buf) > 0 {
		_, _ = w.Write([]byte{'\n'})
	}
}

// lockedWriter lets several ranks write to one destination that is not a file.
type lockedWriter struct {
	all *output
	to  io.Writer
}

func (w lockedWriter) Write(p []byte) (int, error) {
	w.all.write(w.to, p)
	return len(p), nil
}

// teller passes lines on to a function in a goroutine of its own, which may wait for a reader that
// is stuck while the job goes on.
type teller struct {
	lines chan string
	over  chan struct{}
}

func newTeller(say func(text string), most int) *teller {
	t := &teller{lines: make(chan string, most), over: make(chan struct{})}
	go func() {
		defer close(t.over)
		for text := range t.lines {
			say(text)
		}
	}()
	return t
}

// say passes a line on, unless more wait than a job has to say.
func (t *teller) say(text string) {
	select {
	case t.lines <- text:
	default:
	}
}

// end waits until all lines have been passed on, but not for a reader that is stuck.
func (t *teller) end() {
	close(t.lines)
	select {
	case <-t.over:
	case <-time.After(outputDelay):
	}
}
