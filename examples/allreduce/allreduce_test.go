//go:build unix

package main

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/launch/launchtest"
)

func TestMain(m *testing.M) { launchtest.Main(m, map[string]launchtest.Role{"allreduce": allreduce}) }

// Each rank prints the sums, and may leave before the others have them.
func TestAllreduce(t *testing.T) {
	for _, fabric := range []string{"shm", "tcp"} {
		t.Run(fabric, func(t *testing.T) {
			launchtest.Parallel(t, fabric)
			out, _, err := launchtest.Job{N: 5, Fabric: fabric, Role: "allreduce", Wireup: "unix", Sampling: "off"}.Run(t)
			require.NoError(t, err, out)
			for r := range 5 {
				require.Contains(t, out, fmt.Sprintf("[%d] rank %d: 5 ranks, whose numbers add up to 10\n", r, r))
			}
		})
	}
}
