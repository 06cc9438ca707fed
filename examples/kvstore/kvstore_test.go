//go:build unix

package main

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/launch/launchtest"
)

func TestMain(m *testing.M) {
	whole := func(o options) launchtest.Role {
		o.alone = time.Millisecond
		return func(ctx context.Context) error { return run(ctx, o) }
	}
	launchtest.Main(m, map[string]launchtest.Role{
		"mixed":   whole(options{keys: 40, ops: 60, servers: 1, clients: 2, writes: 0.2}),
		"sharded": whole(options{keys: 40, ops: 60, servers: 2, clients: 1, writes: 0.2}),
		"many":    whole(options{keys: 1000, ops: 2000, servers: 1, clients: 1, writes: 0.01}),
		"one key": whole(options{keys: 1, ops: 60, servers: 1, clients: 3, writes: 0.5}),
		"idle":    whole(options{keys: 1, ops: 1, servers: 2, clients: 1}),
		"huge":    whole(options{keys: math.MaxInt, ops: 1, servers: 1, clients: 1}),
		"nan":     whole(options{keys: 1, ops: 1, servers: 1, clients: 1, writes: math.NaN()}),
		"calls":   pair(calls),
		"torn":    pair(tear),
		"hammer":  hammer,
		"hostile": pair(hostile, unharmed),
		"quit":    quit,
	})
}

// An owner that computes until all clients have come does not do so for ever when one
// has died.
func TestClientThatDies(t *testing.T) {
	for _, fabric := range []string{"shm", "tcp"} {
		t.Run(fabric, func(t *testing.T) {
			t.Parallel()
			out := launchtest.Job{N: 2, Role: "quit", Fabric: fabric}.Output(t)
			require.Contains(t, out, "[0] rank 1 is gone: ")
		})
	}
}

// All reads give values that were written, in the order of versions, and an owner
// that computes and calls nothing sees the clients' last word.
func TestLoads(t *testing.T) {
	for _, c := range []struct {
		n            int
		fabric, role string
		head         string
		ops          int
	}{
		{1, "shm", "mixed", "40 keys on 1 of 1 ranks, 2 clients over shm", 120},
		{2, "shm", "many", "1000 keys on 1 of 2 ranks, 1 clients over shm", 2000},
		{4, "shm", "sharded", "40 keys on 2 of 4 ranks, 2 clients over shm", 120},
		{3, "shm", "one key", "1 keys on 1 of 3 ranks, 6 clients over shm", 360},
		{2, "tcp", "mixed", "40 keys on 1 of 2 ranks, 2 clients over tcp", 120},
		{3, "tcp", "sharded", "40 keys on 2 of 3 ranks, 1 clients over tcp", 60},
		{2, "ibv", "mixed", "40 keys on 1 of 2 ranks, 2 clients over ibv", 120},
	} {
		t.Run(fmt.Sprintf("%d ranks %s %s", c.n, c.fabric, c.role), func(t *testing.T) {
			launchtest.Parallel(t, c.fabric)
			out := launchtest.Job{N: c.n, Role: c.role, Fabric: c.fabric}.Output(t)
			require.Contains(t, out, "[0] "+c.head)
			require.Contains(t, out, "[0] all values were whole, and no version went back\n")
			var reads, writes int
			_, err := fmt.Sscanf(out[len("[0] "+c.head):], ": %d reads and %d writes", &reads, &writes)
			require.NoError(t, err, out)
			require.Equal(t, c.ops, reads+writes)
			require.Positive(t, reads)
			require.Positive(t, writes)
		})
	}
}

// Rank 0 holds the store, rank 1 does what the role says, rank 2 sees what became of it.
func TestPairs(t *testing.T) {
	ranks := map[string]int{"calls": 2, "torn": 2, "hammer": 2, "hostile": 3}
	for _, fabric := range []string{"shm", "tcp", "ibv"} {
		for _, role := range []string{"calls", "torn", "hammer", "hostile"} {
			t.Run(role+" "+fabric, func(t *testing.T) {
				launchtest.Parallel(t, fabric)
				out := launchtest.Job{N: ranks[role], Role: role, Fabric: fabric}.Output(t)
				require.Contains(t, out, "[1] "+role+" over "+fabric)
				t.Log(out)
			})
		}
	}
}

func TestRefuses(t *testing.T) {
	t.Parallel()
	for _, role := range []string{"huge", "nan"} {
		out, _, err := launchtest.Job{N: 1, Role: role, Fabric: "shm"}.Run(t)
		require.Error(t, err)
		require.Contains(t, out, "want 1 to 1073741824 keys, ")
	}
}

func TestNobodyReads(t *testing.T) {
	t.Parallel()
	out, _, err := launchtest.Job{N: 2, Role: "idle", Fabric: "shm"}.Run(t)
	require.Error(t, err)
	require.Contains(t, out, "want between 1 server and 1, for 2 ranks, not 2")
}
