//go:build unix

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The test binary is also the program that the ranks of its jobs run.
const rankEnv = "RMA_TEST_GRPC_RANK"

func TestMain(m *testing.M) {
	if os.Getenv(rankEnv) == "" {
		os.Exit(m.Run())
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute) // ends a hang
	defer cancel()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// Ranks in processes of their own call the server, over each link that needs no
// device. The launcher is the project's, built from its sources.
func TestGRPC(t *testing.T) {
	rmarun := filepath.Join(t.TempDir(), "rmarun")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", rmarun, "./cmd/rmarun")
	build.Dir = "../.." // a module of its own
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build rmarun: %v\n%s", err, out)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, fabric := range []string{"shm", "tcp"} {
		t.Run(fabric, func(t *testing.T) {
			var out bytes.Buffer
			cmd := exec.CommandContext(t.Context(), rmarun, "-n", "3", exe)
			cmd.Env = append(os.Environ(), rankEnv+"=1", "RMA_FABRIC="+fabric, "RMA_SAMPLING=off")
			cmd.Stdout, cmd.Stderr = &out, &out
			if err := cmd.Run(); err != nil {
				t.Fatalf("%v\n%s", err, out.String())
			}
			for r := 1; r < 3; r++ {
				if want := fmt.Sprintf("rank %d: SERVING over %s, a call takes ", r, fabric); !strings.Contains(out.String(), want) {
					t.Fatalf("no %q in\n%s", want, out.String())
				}
			}
			t.Log(out.String())
		})
	}
}
