//go:build unix

// Package launchtest runs jobs for tests of programs: the test binary is also the
// program that the ranks run, so that what is tested is what was compiled, with
// the race detector where the test has it.
//
//	func TestMain(m *testing.M) {
//		launchtest.Main(m, map[string]launchtest.Role{"sum": sum})
//	}
//
//	func TestSum(t *testing.T) {
//		out, _, err := launchtest.Job{N: 4, Role: "sum", Fabric: "tcp"}.Run(t)
//
// It imports internal/launch and internal/testutil.
package launchtest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/launch"
	"github.com/seed33544411/rma/internal/testutil"
)

// roleEnv tells a process that it is a rank, and what it does.
const roleEnv = "RMA_TEST_ROLE"

const (
	rankLimit = testutil.Limit             // of one rank, that ends by itself
	jobLimit  = rankLimit + 30*time.Second // of a job, whose ranks do not
)

// Role is what a rank does. Its error is printed, and the rank exits with 1.
type Role func(context.Context) error

// Main runs the role that the environment names, else the tests.
func Main(m *testing.M, roles map[string]Role) {
	name := os.Getenv(roleEnv)
	if name == "" {
		testutil.Main(m)
		return
	}
	role, found := roles[name]
	if !found {
		fmt.Fprintf(os.Stderr, "no role %q\n", name)
		os.Exit(2)
	}
	ctx, cancel := context.WithTimeout(context.Background(), rankLimit)
	defer cancel()
	if err := role(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Job is n ranks of this binary in one role.
type Job struct {
	N        int
	Role     string
	Path     string   // another program, that has no roles; empty: this binary
	Fabric   string   // forced link; empty: the best
	Wireup   string   // "unix" or "tcp"; empty: unix
	Env      []string // further variables
	Sampling string   // empty: "off"; tests of sampling say "cached" or "force"
}

// Run returns what the ranks printed, every line behind its rank in brackets, and
// the job's exit code and error.
func (j Job) Run(t *testing.T) (out string, code int, err error) {
	t.Helper()
	if j.Path == "" {
		j.Path, err = os.Executable()
		require.NoError(t, err)
	}
	j.Sampling = cmp.Or(j.Sampling, "off")
	env := []string{roleEnv + "=" + j.Role, "RMA_SAMPLING=" + j.Sampling, "RMA_PROFILES=" + t.TempDir()}
	if j.Fabric != "" {
		env = append(env, "RMA_FABRIC="+j.Fabric)
	}
	env = append(env, j.Env...)
	var text lines
	code, err = launch.Run(testutil.Context(t, jobLimit), launch.Spec{
		N: j.N, Path: j.Path, Env: env, Wireup: j.Wireup,
		Stdout: &text, Stderr: &text, Prefix: true, Grace: 2 * time.Second,
	})
	return text.String(), code, err
}

// Output is Run for a job that must end well.
func (j Job) Output(t *testing.T) string {
	t.Helper()
	out, _, err := j.Run(t)
	require.NoError(t, err, out)
	return out
}

// Parallel lets a test over that link run beside others, but for the link that
// needs a device: there it has to be one.
func Parallel(t *testing.T, link string) {
	t.Helper()
	if link == "ibv" || link == "verbs" {
		testutil.RequireRDMA(t)
		return
	}
	t.Parallel()
}

// lines collects what several processes print.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
