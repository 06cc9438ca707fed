package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/offheap"
)

// envCMA makes a process the child of CheckCMA: "pid address length".
const envCMA = "RMABENCH_CMA"

const cmaBytes = 12345 // several pages and a fraction

// ServeCMA is the child of CheckCMA: if this process was started as that, it copies the
// parent's memory to its standard output and exits. Call it first in main.
func ServeCMA() {
	job := os.Getenv(envCMA)
	if job == "" {
		return
	}
	if err := copyParent(job); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func copyParent(job string) error {
	var (
		pid, n int
		addr   uint64
	)
	if _, err := fmt.Sscanf(job, "%d %d %d", &pid, &addr, &n); err != nil || n != cmaBytes {
		return fmt.Errorf("%s=%q: bad request", envCMA, job)
	}
	buf := make([]byte, n)
	if err := readProcess(buf, pid, addr); err != nil {
		return err
	}
	_, err := os.Stdout.Write(buf)
	return err
}

// CheckCMA starts a child of this process, which copies memory of this process with
// process_vm_readv as a rank on the same host would, and compares the copy. A limit that
// only lets a parent read its child (ptrace_scope 1) prevents this direction, as it does
// between two ranks of one launcher.
func CheckCMA() error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	mem, err := offheap.Alloc(cmaBytes, offheap.Scratch)
	if err != nil {
		return err
	}
	for i := range mem {
		mem[i] = byte(i*131 ^ i>>8)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, exe)
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %d %d", envCMA, os.Getpid(), fabric.Addr(mem), len(mem)))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	switch {
	case err != nil && stderr.Len() > 0:
		err = errors.New(strings.TrimSpace(stderr.String()))
	case err == nil && !bytes.Equal(out, mem):
		err = errors.New("the copy differs")
	}
	return errors.Join(err, offheap.Free(mem, offheap.Scratch))
}
