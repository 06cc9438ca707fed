//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/launch"
	"github.com/seed33544411/rma/internal/testutil"
	"github.com/seed33544411/rma/internal/topo"
)

// rankEnv makes the test binary a rank of TestNUMA.
const rankEnv = "RMARUN_TEST_RANK"

// arenaBytes is the memory that each rank allocates.
const arenaBytes = 8 << 20

// placedRank prints the rank, the processors of its threads, and the pages of memory that it allocates on each
// NUMA node.
func placedRank() error {
	ctx, cancel := context.WithTimeout(context.Background(), testutil.Limit)
	defer cancel()
	eng, err := rma.Open(ctx, nil)
	if err != nil {
		return err
	}
	region, err := eng.Alloc(arenaBytes)
	if err != nil {
		return err
	}
	if err := eng.Barrier(ctx); err != nil { // the progress goroutine has begun
		return err
	}
	var touched byte // numa_maps counts the pages that this process has accessed: a read does not move one
	for at := 0; at < arenaBytes; at += 4 << 10 {
		touched |= region.Bytes()[at]
	}
	if touched != 0 {
		return errors.New("new memory is not zero")
	}
	tasks, err := filepath.Glob("/proc/self/task/*/status")
	if err != nil {
		return err
	}
	threads := map[string]bool{}
	for _, t := range tasks {
		text, _ := os.ReadFile(t) // a thread may have ended
		for line := range strings.Lines(string(text)) {
			if list, ok := strings.CutPrefix(line, "Cpus_allowed_list:"); ok {
				threads[strings.TrimSpace(list)] = true
			}
		}
	}
	pages, err := pagesAt(fmt.Sprintf("%p", region.Bytes())[len("0x"):])
	if err != nil {
		return err
	}
	var lists []string
	for l := range threads {
		lists = append(lists, l)
	}
	slices.Sort(lists)
	fmt.Printf("%d %s %s\n", eng.Rank(), strings.Join(lists, ";"), pages)
	return eng.Close()
}

// pagesAt returns the pages of the mapping that begins at an address, by node, such as N0=2048, from
// numa_maps, and their size in KiB.
func pagesAt(address string) (string, error) {
	text, err := os.ReadFile("/proc/self/numa_maps")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if fields[0] != address {
			continue
		}
		fields = slices.DeleteFunc(fields, func(f string) bool {
			_, err := strconv.Atoi(strings.TrimPrefix(strings.SplitN(f, "=", 2)[0], "N"))
			return !strings.HasPrefix(f, "N") && !strings.HasPrefix(f, "kernelpagesize_kB") || strings.HasPrefix(f, "N") && err != nil
		})
		return strings.Join(fields, ","), nil
	}
	return "", fmt.Errorf("no mapping at %s in\n%s", address, text)
}

// A rank that is bound to a core of a NUMA node has its memory there, and its progress goroutine a core
// of the same node: with the system's own nodes, of which there must be two (make numa).
func TestNUMA(t *testing.T) {
	nodes, _ := topo.LocalNodes()
	nodes = slices.DeleteFunc(nodes, func(n topo.Node) bool { return !n.CPUs.Meets(cpu.Allowed()) })
	if len(nodes) < 2 {
		t.Skip("one NUMA node: make numa runs this in a guest with two")
	}
	for i := range nodes {
		require.Len(t, nodes[i].Distances, len(nodes))
		require.Equal(t, 10, nodes[i].Distances[i])
	}
	bound, assumed := launch.Place(topo.Scatter, len(nodes))
	require.Empty(t, assumed)
	exe, err := os.Executable()
	require.NoError(t, err)
	code, out, errs := rmarun(t, "-n", strconv.Itoa(len(nodes)), "--bind", "scatter", "--bind-progress", "env", rankEnv+"=1", "RMA_FABRIC=shm", exe)
	require.Zero(t, code, errs)
	lines := sorted(out)
	require.Len(t, lines, len(nodes), out)
	for r, line := range lines {
		var rank int
		var threads, pages string
		_, err := fmt.Sscan(line, &rank, &threads, &pages)
		require.NoError(t, err, line)
		require.Equal(t, r, rank)
		require.Equal(t, nodes[r].ID, bound[r].Node, "each node has a rank")
		require.True(t, bound[r].CPUs.Within(nodes[r].CPUs))
		want := []string{bound[r].CPUs.String()}
		if p := bound[r].Progress; !p.Equal(bound[r].CPUs) {
			require.True(t, p.Within(nodes[r].CPUs))
			want = append(want, p.String())
		}
		require.Equal(t, want, strings.Split(threads, ";"), line)
		var onNode, size int
		_, err = fmt.Sscanf(pages, fmt.Sprintf("N%d=%%d,kernelpagesize_kB=%%d", nodes[r].ID), &onNode, &size)
		require.NoError(t, err, "all pages are on node %d: %s", nodes[r].ID, line)
		require.Equal(t, arenaBytes, onNode*size<<10, line)
	}
}
