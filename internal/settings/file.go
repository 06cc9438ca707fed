package settings

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxFile bounds a settings file. All settings with a page of comment each are
// less; more is a wrong path.
const maxFile = 256 << 10

// assignment is one line of a file.
type assignment struct {
	name, value string
	line        int
}

// parseFile reads lines of the form
//
//	name = value   # comment
//
// Empty lines and lines that begin with # say nothing. A # after a space begins a
// comment; a value that needs one, or spaces at its ends, is written as a Go
// string: "…". What is malformed is reported with its line, and the rest is read.
func parseFile(path, text string) (as []assignment, es Errors) {
	bad := func(line int, format string, args ...any) {
		es = append(es, &Error{At: at(path, line), What: fmt.Sprintf(format, args...), Err: ErrInvalid})
	}
	seen := map[string]int{}
	for i, line := range strings.Split(strings.TrimPrefix(text, "\ufeff"), "\n") {
		n := i + 1
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		if !utf8.ValidString(line) || strings.ContainsRune(line, 0) {
			bad(n, "not text")
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		if !ok || name == "" {
			bad(n, "%q: want name = value", clip(line))
			continue
		}
		value, err := fileValue(value)
		switch {
		case err != nil:
			bad(n, "%s: %v", clip(name), err)
		case seen[name] > 0:
			bad(n, "%s was set in line %d already", clip(name), seen[name])
		default:
			seen[name] = n
			as = append(as, assignment{name, value, n})
		}
	}
	return as, es
}

// fileValue takes comment and quotes off.
func fileValue(s string) (string, error) {
	if strings.HasPrefix(s, `"`) {
		q, err := strconv.QuotedPrefix(s)
		if err != nil {
			return "", errors.New(`a value in quotes must end with " and be written as a Go string`)
		}
		if rest := strings.TrimSpace(s[len(q):]); rest != "" && rest[0] != '#' {
			return "", fmt.Errorf("%q after the value", clip(rest))
		}
		s, err = strconv.Unquote(q)
		if err != nil {
			return "", err
		}
	} else {
		for i := range len(s) {
			if s[i] == '#' && (i == 0 || s[i-1] == ' ' || s[i-1] == '\t') {
				s = strings.TrimSpace(s[:i])
				break
			}
		}
	}
	if s == "" {
		return "", errors.New("no value; delete the line to get the default")
	}
	return s, nil
}

func at(path string, line int) string { return path + ":" + strconv.Itoa(line) }

// clip bounds what of a file is repeated in an error.
func clip(s string) string {
	const most = 40
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	return string([]rune(s)[:most]) + "…"
}

// readFile reads the file at path.
func readFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(b) > maxFile {
		err = fmt.Errorf("larger than %d KiB: is it a settings file?", maxFile>>10)
	}
	return string(b), err
}
