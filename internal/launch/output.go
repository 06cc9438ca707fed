package launch

import (
	"bytes"
	"io"
	"strconv"
	"sync"
)

// maxLine bounds the buffered part of an unfinished line; a longer line is split.
const maxLine = 1 << 20

// lineWriter forwards whole lines, each behind the rank's tag, in one Write under a lock
// that all ranks share: lines of different ranks do not mix. Write is for one goroutine.
type lineWriter struct {
	mu  *sync.Mutex
	to  io.Writer
	tag []byte
	buf []byte // an unfinished line
	out []byte
}

func newLineWriter(mu *sync.Mutex, to io.Writer, rank int) *lineWriter {
	return &lineWriter{mu: mu, to: to, tag: []byte("[" + strconv.Itoa(rank) + "] ")}
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
	if len(w.out) == 0 {
		return n, nil
	}
	w.mu.Lock()
	_, err := w.to.Write(w.out)
	w.mu.Unlock()
	if err != nil {
		return 0, err
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
	mu *sync.Mutex
	to io.Writer
}

func (w lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.to.Write(p)
}
