package main

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/launch"
	"github.com/seed33544411/rma/internal/topo"
)

// affinity prints the rank and the processors that its process may use.
const affinity = `while read -r name list; do [ "$name" != Cpus_allowed_list: ] || echo "$RMA_RANK on $list"; done </proc/$$/status`

func sorted(out string) []string {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	slices.Sort(lines)
	return lines
}

func TestBind(t *testing.T) {
	t.Parallel()
	for _, policy := range []topo.Policy{topo.None, topo.Scatter, topo.Compact} {
		bound, assumed := launch.Place(policy, 2)
		var want []string
		var table strings.Builder
		require.NoError(t, launch.WriteBindings(&table, bound, assumed))
		for r := range 2 {
			on := cpu.Allowed()
			if policy != topo.None {
				on = bound[r].CPUs
			}
			want = append(want, fmt.Sprintf("%d on %v", r, on))
		}
		code, out, errs := rmarun(t, "-n", "2", "--bind", policy.String(), "--report-bindings", "sh", "-c", affinity)
		require.Zero(t, code, errs)
		require.Equal(t, want, sorted(out), policy.String())
		require.Equal(t, table.String(), errs)
	}
	code, out, errs := rmarun(t, "-n", "2", "sh", "-c", affinity)
	require.Zero(t, code, errs)
	require.Equal(t, []string{fmt.Sprintf("0 on %v", cpu.Allowed()), fmt.Sprintf("1 on %v", cpu.Allowed())}, sorted(out), "the default")
	require.Empty(t, errs)

	// The flags are right, and the disk is full.
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	require.NoError(t, err)
	defer full.Close()
	cmd := command(t, "-n", "2", "--report-bindings", "true")
	cmd.Stderr = full
	require.Error(t, cmd.Run())
	require.Equal(t, 1, cmd.ProcessState.ExitCode())
}

// What a launcher above left to rmarun is not widened, although there are fewer cores than
// ranks.
func TestBindWithinTheBindingFound(t *testing.T) {
	t.Parallel()
	for _, no := range cpu.Allowed().CPUs()[:min(2, cpu.Allowed().Len())] {
		cmd := command(t, "-n", "3", "--bind", "scatter", "sh", "-c", affinity)
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		started := make(chan error)
		go func() {
			runtime.LockOSThread() // for ever: the thread ends with the goroutine, and its binding
			err := topo.BindThread(cpu.Of(no))
			if err == nil {
				err = cmd.Start()
			}
			started <- err
		}()
		require.NoError(t, <-started)
		require.NoError(t, cmd.Wait(), errs.String())
		require.Equal(t, []string{fmt.Sprintf("0 on %d", no), fmt.Sprintf("1 on %d", no), fmt.Sprintf("2 on %d", no)}, sorted(out.String()))
	}
}
