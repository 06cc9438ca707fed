package rma

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/testutil"
)

// boundThreads counts the threads of this process that may run on s and nowhere else.
func boundThreads(t *testing.T, s cpu.Set) (n int) {
	files, err := filepath.Glob("/proc/self/task/*/status")
	require.NoError(t, err)
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err == nil && strings.Contains(string(text), fmt.Sprintf("Cpus_allowed_list:\t%v\n", s)) {
			n++
		}
	}
	return n
}

func TestProgressCPU(t *testing.T) {
	cpus := cpu.Allowed().CPUs()
	last := cpu.Of(cpus[len(cpus)-1])
	before := boundThreads(t, last)
	t.Setenv(envProgressCPU, "")
	ctx := testutil.Context(t, 30*time.Second)
	e, err := Open(ctx, nil)
	require.NoError(t, err)
	if len(cpus) > 1 { // else all threads are bound
		require.Equal(t, before, boundThreads(t, last), "the binding found is left alone")
	}
	require.NoError(t, e.Close())

	t.Setenv(envProgressCPU, last.String())
	e, err = Open(ctx, nil)
	require.NoError(t, err)
	if len(cpus) > 1 {
		require.Equal(t, before+1, boundThreads(t, last), "one thread is bound")
	}
	mem, err := e.Alloc(4096)
	require.NoError(t, err)
	require.NoError(t, e.Peer(0).Put(mem.Key().At(1000), mem.Slice(0, 100)).Wait(ctx))
	require.NoError(t, mem.Close())
	require.NoError(t, e.Close())
	if len(cpus) > 1 {
		testutil.Eventually(t, testutil.Limit, func() bool { return boundThreads(t, last) == before }, "the thread is free again")
	}

	t.Setenv(envProgressCPU, "16383")
	_, err = Open(ctx, nil)
	require.ErrorIs(t, err, syscall.EINVAL)
	require.ErrorContains(t, err, "RMA_PROGRESS_CPU: topo: bind to processors 16383")
	t.Setenv(envProgressCPU, "-1")
	_, err = Open(ctx, nil)
	require.ErrorContains(t, err, `RMA_PROGRESS_CPU="-1": want a whole number, 0 … 16383`)
}

// poor opens rank 1 of a job, with no descriptor left, and says whether the error has its type.
var poor = testutil.NewChild("poor", func(args []string, _ *bufio.Reader, out io.Writer) error {
	ln, err := net.Listen("tcp", "127.0.0.1:0") // Go's poller needs descriptors as well
	if err != nil {
		return err
	}
	if err := ln.Close(); err != nil {
		return err
	}
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	limit.Cur = 0
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	e, err := openChild("shm", args[0])
	if err == nil {
		err = e.Close()
	}
	fmt.Fprintln(out, errors.Is(err, ErrResources), err)
	return nil
})

// A rank that cannot join for lack of descriptors says so.
func TestOpenWithoutDescriptors(t *testing.T) {
	c := rendezvous(t, 2, "shm")(0)
	line := poor.Start(t, c.Job.Root).Line(t, testutil.Limit)
	require.Regexp(t, "^true .*(ulimit -n)", line)
}
