//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	if spec, is := os.LookupEnv(workEnv); is { // the test binary is the program of its ranks
		if err := runRank(spec); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// One round of each part: the campaign itself works, and so does what it tests.
func TestOneRoundOfEachPart(t *testing.T) {
	if testing.Short() {
		t.Skip("starts some twenty processes")
	}
	for _, p := range parts {
		t.Run(p.name, func(t *testing.T) {
			r := newRound(p, 1, 0)
			p.run(t.Context(), r)
			require.Empty(t, r.faults)
			var out bytes.Buffer
			table(&out, []*part{p}, []*round{r})
			require.Contains(t, out.String(), p.name)
		})
	}
}

func TestFlags(t *testing.T) {
	var errs bytes.Buffer
	c, err := parse([]string{"--seed", "7", "--parts", "death,limits", "--round", "3"}, &errs)
	require.NoError(t, err)
	require.Equal(t, uint64(7), c.seed)
	require.Equal(t, 3, c.round)
	require.Len(t, c.parts, 2)
	for _, bad := range [][]string{{"--parts", "nothing"}, {"--seed", "x"}, {"more"}} {
		require.Equal(t, 2, run(bad, &errs, &errs), bad)
	}
	require.Contains(t, errs.String(), `no part "nothing": there are death`)
}

// A round's choices follow from seed, part and number, whatever ran before it.
func TestRoundsAreRepeatable(t *testing.T) {
	a, b := newRound(parts[0], 7, 3), newRound(parts[0], 7, 3)
	require.Equal(t, some(a, 5, allOps()), some(b, 5, allOps()))
	require.NotEqual(t, a.Uint64(), newRound(parts[0], 7, 4).Uint64())
	require.NotEqual(t, a.Uint64(), newRound(parts[1], 7, 3).Uint64())
}

// A figure beyond its bound is counted, a promise broken once is broken, and what the
// machine refuses is said.
func TestReport(t *testing.T) {
	r := newRound(parts[0], 7, 3)
	r.measure(deathToError, time.Millisecond)
	r.measure(deathToError, deathToError.bound)
	r.measure(deathToError, deathToError.bound+1)
	require.Empty(t, r.faults)
	r.measure(deathToError, deathToError.hard+1)
	require.Len(t, r.faults, 1)
	r.leaveOut(errors.New("no freezer here"))
	p := &proc{rank: 1, events: []event{{Ev: "held", Op: inOrder.String(), N: 12}, {Ev: "bad", Kind: inOrder.String(), Text: "twice"}}}
	r.hear(p, "stopped: ")
	require.Contains(t, r.faults, "stopped: rank 1: twice")
	var out bytes.Buffer
	table(&out, parts[:1], []*round{r})
	promises(&out, []*round{r})
	require.Regexp(t, `death +1 +1 +death to error +4 +.* 50ms +2\n`, out.String())
	require.Regexp(t, `\n1 +12 +no message lost, doubled or reordered\n`, out.String())
	require.Contains(t, out.String(), "1 times death left out: no freezer here\n")
}

// What is expected and does not come is a fault that says what the rank did.
func TestFaultsAreFound(t *testing.T) {
	r := newRound(parts[0], 1, 0)
	j, err := startJob(jobSpec{Ranks: 2, Fabric: "shm", Work: work{Ops: []string{"add"}, Max: 1 << 12}})
	require.NoError(t, err)
	defer j.kill()
	require.NoError(t, j.ready(startLimit))
	told(r, j.procs[0], 1, now(), "gone", figure{name: "x", hard: -tellLimit}) // nobody was killed
	require.Len(t, r.faults, 1)
	require.Contains(t, r.faults[0], "rank 0: 0 of 1")
	_ = j.procs[1].cmd.Process.Kill()
	told(r, j.procs[0], 1, now(), "hung", deathToError) // but it is gone
	require.Len(t, r.faults, 2)
	require.Contains(t, r.faults[1], `which is hung: error is "gone"`)
}
