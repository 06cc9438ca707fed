package compare

import (
	"context"
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// C programs for tests that no packaged program makes.
//
//go:embed csrc/*.c csrc/*.h
var sources embed.FS

// compileTime bounds a compilation.
const compileTime = time.Minute

// compile returns a Prepare that compiles one of the sources to dir/play.
func compile(cc, source string) func(ctx context.Context, dir string) error {
	return func(ctx context.Context, dir string) error {
		for _, name := range []string{"work.h", source} {
			text, err := sources.ReadFile("csrc/" + name)
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, name), text, 0o600)
			}
			if err != nil {
				return err
			}
		}
		ctx, cancel := context.WithTimeout(ctx, compileTime)
		defer cancel()
		var out bounded
		c := command(ctx, []string{cc, "-O2", "-o", compiled(dir), filepath.Join(dir, source)}, nil, &out, &out)
		if err := run(c); err != nil {
			return fmt.Errorf("%s %s: %w%s", filepath.Base(cc), source, err, tail(&out))
		}
		return nil
	}
}

// compiled is the path of compile's result.
func compiled(dir string) string { return filepath.Join(dir, "play") }

// parseC reads the line that the programs in csrc print: test, size, operations and
// seconds, which are halved for a ping-pong.
func parseC(program string) func(out []byte, j Job) (float64, error) {
	return func(out []byte, j Job) (float64, error) {
		want := []string{cTests[j.Test.Kind], strconv.Itoa(j.Test.Size), strconv.Itoa(j.Iters)}
		v, err := parsePoint(out, program, want, 1, "seconds", positive)
		if err != nil {
			return 0, err
		}
		return j.figure(v[0]), nil
	}
}

// parsePoint returns the n numbers behind the words of want in a line of out; errors call them what. The
// first line of these words and n others must have good numbers.
func parsePoint(out []byte, program string, want []string, n int, what string, good func(v []float64) bool) ([]float64, error) {
	bad := &OutputError{Program: program, Want: strings.Join(want, " ") + " and " + what, Line: lastLine(out)}
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if len(f) != len(want)+n || !slices.Equal(f[:len(want)], want) {
			continue
		}
		if v, ok := numbers(f[len(want):], n); ok && good(v) {
			return v, nil
		}
		bad.Line = strings.TrimSpace(line)
		break
	}
	return nil, bad
}

// positive accepts numbers whose first is.
func positive(v []float64) bool { return v[0] > 0 }

// cTests are the names of tests in those programs.
var cTests = map[Kind]string{Lat: "lat", BW: "bw", Rate: "bw", Put: "put", PutBW: "putbw"}

// figure converts the seconds of all iterations, halved for a ping-pong, to the test's
// unit.
func (j *Job) figure(seconds float64) float64 {
	n := float64(j.Iters)
	switch j.Test.Kind {
	case Lat, Put:
		return seconds * 1e6 / n
	case Rate:
		return n / seconds / 1e6
	}
	return n * float64(j.Test.Size) / seconds / 1e6
}

// numbers reads n fields, all of which must be plausible figures: 0, or within bounds for
// which computed figures are finite.
func numbers(fields []string, n int) ([]float64, bool) {
	if len(fields) != n {
		return nil, false
	}
	v := make([]float64, n)
	for i, f := range fields {
		x, err := strconv.ParseFloat(f, 64)
		if err != nil || x != 0 && !(x > 1e-12 && x < 1e15) {
			return nil, false
		}
		v[i] = x
	}
	return v, true
}
