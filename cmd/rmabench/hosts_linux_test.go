package main

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/internal/bench"
	"github.com/seed33544411/rma/internal/testutil"
	"github.com/seed33544411/rma/internal/wireup"
)

// inNamespace returns what runs functions in a network namespace of its own.
func inNamespace(t *testing.T) (do func(func() error)) {
	t.Helper()
	work, done := make(chan func() error), make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the namespace
		for f := range work {
			done <- f()
		}
	}()
	t.Cleanup(func() { close(work) })
	work <- func() error { return unix.Unshare(unix.CLONE_NEWNET) }
	if err := <-done; err != nil {
		t.Skipf("network namespaces cannot be made here: %v", err)
	}
	return func(f func() error) {
		t.Helper()
		work <- f
		require.NoError(t, <-done)
	}
}

// Ranks of a job that are on different hosts, each with a loopback of its own, measure
// over what is between these.
func TestMeasureInAJobOfTwoHosts(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("needs ip(8)")
	}
	var hosts [2]func(func() error)
	for i := range hosts {
		hosts[i] = inNamespace(t)
	}
	ip := func(host int, args ...string) {
		t.Helper()
		hosts[host](func() error {
			if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
				return fmt.Errorf("ip %v: %w: %s", args, err, out)
			}
			return nil
		})
	}
	var tid int
	hosts[1](func() error { tid = unix.Gettid(); return nil })
	ip(0, "link", "add", "wire", "type", "veth", "peer", "name", "wire", "netns", fmt.Sprint(tid))
	for i := range hosts {
		ip(i, "addr", "add", fmt.Sprintf("192.0.2.%d/24", i+1), "dev", "wire")
		ip(i, "link", "set", "wire", "up")
		ip(i, "link", "set", "lo", "up")
	}
	for _, c := range []string{"lat --op put --sizes 8 --fabric tcp", "rate --op send --sizes 8 --fabric auto"} {
		t.Run(c, func(t *testing.T) {
			ctx := testutil.Context(t, testutil.Limit)
			var ln net.Listener
			hosts[0](func() (err error) {
				ln, err = net.Listen("tcp", "192.0.2.1:0")
				return err
			})
			token := bytes.Repeat([]byte{0x5a}, 16)
			srv, err := wireup.Serve(ctx, ln, wireup.ServerConfig{Size: 2, Token: token})
			require.NoError(t, err)
			defer func() { require.NoError(t, srv.Close()) }()
			var cmds [2]*exec.Cmd
			var out, errs [2]bytes.Buffer
			for i := range hosts {
				cmds[i] = exec.CommandContext(ctx, os.Args[0], fast(append(strings.Fields(c), "--format", "json")...)...)
				cmds[i].Env = append(os.Environ(), envCommand+"=1", fmt.Sprintf("RMA_RANK=%d", i), "RMA_SIZE=2", "RMA_ROOT="+ln.Addr().String(), "RMA_TOKEN="+hex.EncodeToString(token))
				cmds[i].Stdout, cmds[i].Stderr = &out[i], &errs[i]
				hosts[i](cmds[i].Start)
			}
			for i, cmd := range cmds {
				require.NoError(t, cmd.Wait(), "rank %d: %s", i, &errs[i])
			}
			rs, err := bench.ReadJSON(&out[0])
			require.NoError(t, err)
			require.Len(t, rs, 1)
			require.Equal(t, "tcp", rs[0].Fabric)
			require.Empty(t, out[1].String())
		})
	}
}
