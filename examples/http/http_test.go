//go:build unix

package main

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/launch/launchtest"
)

func TestMain(m *testing.M) { launchtest.Main(m, map[string]launchtest.Role{"http": run}) }

// Ranks in processes of their own get and post what the server has and wants.
func TestHTTP(t *testing.T) {
	for _, c := range []struct {
		n      int
		fabric string
	}{{2, "shm"}, {3, "tcp"}, {1, "shm"}, {2, "ibv"}} {
		t.Run(fmt.Sprintf("%d ranks %s", c.n, c.fabric), func(t *testing.T) {
			launchtest.Parallel(t, c.fabric)
			out := launchtest.Job{N: c.n, Role: "http", Fabric: c.fabric}.Output(t)
			for r := min(1, c.n-1); r < c.n; r++ {
				require.Contains(t, out, fmt.Sprintf("rank %d posted 1000000 bytes and got 3000000 over %s\n", r, c.fabric))
				require.Contains(t, out, fmt.Sprintf("rank %d: GET /ping takes ", r))
			}
			t.Log(out)
		})
	}
}
