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

	"github.com/seed33544411/rma/internal/bench/sockets"
)

// The test binary is also the program that the ranks of its jobs run.
const rankEnv = "RMA_TEST_GRPC_RANK"

func TestMain(m *testing.M) {
	if os.Getenv(rankEnv) == "" {
		os.Exit(m.Run())
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute) // ends a hang
	defer cancel()
	main := run
	if len(os.Args) > 1 && os.Args[1] == sockets.Arg {
		main = measure
	}
	if err := main(ctx); err != nil {
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

// The measured calls and streams work over rmanet and over sockets.
func TestMeasure(t *testing.T) {
	rmabench := filepath.Join(t.TempDir(), "rmabench")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", rmabench, "./cmd/rmabench")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build rmabench: %v\n%s", err, out)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), rmabench, "sockets", "--program", exe, "--workloads", "grpc,grpc-stream", "--busy", "0", "--conns", "2", "--rounds", "1", "--time", "1ms", "--quiet", "--format", "json")
	cmd.Env = append(os.Environ(), rankEnv+"=1", "RMA_SAMPLING=off")
	out, err := cmd.CombinedOutput()
	if err != nil || bytes.Count(out, []byte(`"workload":"grpc`)) != 8 {
		t.Fatalf("%v\n%s", err, out)
	}
}
