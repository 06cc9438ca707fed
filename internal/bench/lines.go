package bench

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
)

// maxLine bounds one line of results that are read back.
const maxLine = 1 << 20

// EachLine calls f with every line of r that is not empty; there must be one. Its errors wrap
// ErrFormat and contain the line's number.
func EachLine(r io.Reader, f func(line []byte) error) error {
	sc, lines := bufio.NewScanner(r), 0
	sc.Buffer(nil, maxLine)
	for n := 1; sc.Scan(); n++ {
		line := bytes.TrimSpace(sc.Bytes())
		if len(line) == 0 {
			continue
		}
		lines++
		if err := f(line); err != nil {
			return fmt.Errorf("%w: line %d: %w", ErrFormat, n, err)
		}
	}
	if err := sc.Err(); err != nil {
		return fmt.Errorf("%w: %w", ErrFormat, err)
	}
	if lines == 0 {
		return fmt.Errorf("%w: no results", ErrFormat)
	}
	return nil
}

// ReadLines reads results that WriteLines wrote, each of which check accepts. Unknown fields
// are ignored, so that older readers take newer files.
func ReadLines[T any](r io.Reader, check func(*T) error) (out []T, err error) {
	err = EachLine(r, func(line []byte) error {
		var x T
		if err := json.Unmarshal(line, &x); err != nil {
			return err
		}
		if err := check(&x); err != nil {
			return err
		}
		out = append(out, x)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// WriteLines writes each row as a line of JSON.
func WriteLines[T any](w io.Writer, rows []T) error {
	enc := json.NewEncoder(w)
	for i := range rows {
		if err := enc.Encode(&rows[i]); err != nil {
			return err
		}
	}
	return nil
}
