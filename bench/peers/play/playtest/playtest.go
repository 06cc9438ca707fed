// Package playtest tests a benchmark program as two processes: the test binary runs the
// program if the environment says so, see Main.
package playtest

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/bench/peers/play"
)

const envProgram = "RMAPEER_TEST_PROGRAM"

// Limit bounds a process.
const Limit = "60s"

// Main is to be called by TestMain.
func Main(m *testing.M, t play.Transport) {
	if os.Getenv(envProgram) != "" {
		os.Exit(play.Main(t, os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// Command returns a command that runs the program with these arguments until the test ends.
func Command(t *testing.T, args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	t.Cleanup(cancel)
	self, err := os.Executable()
	require.NoError(t, err)
	c := exec.CommandContext(ctx, self, append(args, "--limit", Limit)...)
	c.Env = append(os.Environ(), envProgram+"=1")
	c.WaitDelay = time.Second
	return c
}

// Serve starts a server and returns its port.
func Serve(t *testing.T) (server *exec.Cmd, port string) {
	server = Command(t, "serve")
	out, err := server.StdoutPipe()
	require.NoError(t, err)
	server.Stderr = os.Stderr
	require.NoError(t, server.Start())
	line, err := io.ReadAll(io.LimitReader(out, int64(len("listening on 127.0.0.1:"))))
	require.NoError(t, err)
	require.Equal(t, "listening on 127.0.0.1:", string(line))
	var rest []byte
	for b := make([]byte, 1); len(rest) == 0 || rest[len(rest)-1] != '\n'; {
		_, err := io.ReadFull(out, b)
		require.NoError(t, err)
		rest = append(rest, b...)
	}
	return server, strings.TrimSpace(string(rest))
}

// Play runs a client with these arguments against a server, both of which must succeed,
// and returns the result.
func Play(t *testing.T, args ...string) (r play.Result) {
	server, port := Serve(t)
	var out, errs bytes.Buffer
	c := Command(t, append([]string{"run", "--port", port}, args...)...)
	c.Stdout, c.Stderr = &out, &errs
	require.NoError(t, c.Run(), errs.String())
	require.NoError(t, server.Wait())
	require.NoError(t, json.Unmarshal(out.Bytes(), &r), out.String())
	return r
}

// All runs every test over every kind of connection, with small and large messages, and
// checks the results.
func All(t *testing.T, tr play.Transport) {
	for _, network := range tr.Nets() {
		for _, size := range []string{"1", "8", "100000"} {
			for _, test := range play.Tests {
				t.Run(network+"/"+test+"/"+size, func(t *testing.T) {
					t.Parallel()
					r := Play(t, "--net", network, "--test", test, "--size", size, "--iters", "300")
					require.Equal(t, tr.Name(), r.Peer)
					require.Equal(t, network, r.Net)
					require.Equal(t, test, r.Test)
					require.Equal(t, 300, r.Iters)
					require.Positive(t, r.Seconds)
					if test == "lat" {
						require.Positive(t, r.P50US)
						return
					}
					require.InEpsilon(t, r.Mmsgs*float64(r.Size), r.MBs, 1e-9)
					require.InEpsilon(t, 300/r.Seconds/1e6, r.Mmsgs, 1e-9)
				})
			}
		}
	}
}

// DeadClient tests that a server ends, with an error, when its client ends during a
// run.
func DeadClient(t *testing.T, network string) {
	server, port := Serve(t)
	c, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", port))
	require.NoError(t, err)
	require.NoError(t, json.NewEncoder(c).Encode(play.Plan{Net: network, Test: "lat", Size: 8, Iters: 1000, Batch: 1}))
	_, err = c.Read(make([]byte, 1)) // it has taken the plan
	require.NoError(t, err)
	require.NoError(t, c.Close())
	var exit *exec.ExitError
	require.ErrorAs(t, server.Wait(), &exit)
	require.Equal(t, 1, exit.ExitCode())
}
