//go:build unix

package main

import (
	"bytes"
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

// The test binary is also the program that the ranks of its jobs run.
const rankEnv = "RMA_TEST_HTTP_RANK"

func TestMain(m *testing.M) {
	if os.Getenv(rankEnv) == "" {
		testutil.Main(m)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

type buffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

// Ranks in processes of their own get and post what the server has and wants.
func TestHTTP(t *testing.T) {
	for _, c := range []struct {
		n      int
		fabric string
	}{{2, "shm"}, {3, "tcp"}, {1, "shm"}, {2, "ibv"}} {
		t.Run(fmt.Sprintf("%d ranks %s", c.n, c.fabric), func(t *testing.T) {
			if c.fabric == "ibv" {
				testutil.RequireRDMA(t)
			} else {
				t.Parallel()
			}
			exe, err := os.Executable()
			require.NoError(t, err)
			var out buffer
			_, err = launch.Run(testutil.Context(t, 90*time.Second), launch.Spec{
				N: c.n, Path: exe, Env: []string{rankEnv + "=1", "RMA_FABRIC=" + c.fabric, "RMA_SAMPLING=off", "RMA_PROFILES=" + t.TempDir()},
				Stdout: &out, Stderr: &out, Prefix: true, Grace: 2 * time.Second,
			})
			require.NoError(t, err, out.String())
			for r := min(1, c.n-1); r < c.n; r++ {
				require.Contains(t, out.String(), fmt.Sprintf("rank %d posted 1000000 bytes and got 3000000 over %s\n", r, c.fabric))
				require.Contains(t, out.String(), fmt.Sprintf("rank %d: GET /ping takes ", r))
			}
			t.Log(out.String())
		})
	}
}
