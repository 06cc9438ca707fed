package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/testutil"
	"github.com/seed33544411/rma/verbs"
)

// rig finds the device and the other implementation.
func rig(t *testing.T) (dev string, gid int, other string) {
	dev = testutil.RequireRDMA(t)[0]
	other, err := exec.LookPath("ibv_rc_pingpong")
	if err != nil {
		testutil.NoRDMA(t, "ibv_rc_pingpong is not installed (package ibverbs-utils)")
	}
	c, err := verbs.Open(dev)
	require.NoError(t, err)
	defer c.Close()
	table, err := c.GIDs(1)
	require.NoError(t, err)
	choice, err := verbs.ChooseGID(table, -1)
	require.NoError(t, err)
	return dev, choice.Chosen.Index, other
}

func freePort(t *testing.T) int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

var variants = []struct {
	name string
	args []string
}{
	{"defaults", []string{"-n", "200"}}, // a thousand take 18 s on an emulated processor
	{"validated", []string{"-c", "-n", "200"}},
	{"events", []string{"-e", "-c", "-n", "200"}},
	{"one byte", []string{"-s", "1", "-n", "200"}},
	{"odd size", []string{"-s", "12345", "-n", "200", "-c"}},
	{"large", []string{"-s", "1048576", "-n", "5", "-c"}},
	{"few receives", []string{"-r", "2", "-n", "100", "-c"}},
	{"small mtu", []string{"-m", "256", "-n", "50", "-c"}},
}

// ours runs this program in the test's process.
func ours(ctx context.Context, args ...string) (string, error) {
	var out bytes.Buffer
	c := command()
	c.SetOut(&out)
	c.SetArgs(args)
	err := c.ExecuteContext(ctx)
	return out.String(), err
}

// theirs runs ibv_rc_pingpong; as a client it is started again while the
// server does not listen yet, for it tries only once.
func theirs(ctx context.Context, prog string, args ...string) (string, error) {
	for {
		out, err := exec.CommandContext(ctx, prog, args...).CombinedOutput()
		if err != nil && ctx.Err() == nil && strings.Contains(string(out), "Couldn't connect to") {
			continue
		}
		return string(out), err
	}
}

type outcome struct {
	out string
	err error
}

func TestAgainstIbvRCPingpong(t *testing.T) {
	dev, gid, prog := rig(t)
	for _, v := range variants {
		t.Run("client of theirs/"+v.name, func(t *testing.T) {
			ctx := testutil.Context(t, 60*time.Second)
			port := strconv.Itoa(freePort(t))
			args := append([]string{"-d", dev, "-g", strconv.Itoa(gid), "-p", port}, v.args...)
			server := make(chan outcome, 1)
			go func() {
				out, err := theirs(ctx, prog, args...)
				server <- outcome{out, err}
			}()
			out, err := ours(ctx, append(args, "127.0.0.1")...)
			s := <-server
			require.NoError(t, err, "ours: %s\ntheirs: %s", out, s.out)
			judge(t, out, s)
		})
		t.Run("server of theirs/"+v.name, func(t *testing.T) {
			ctx := testutil.Context(t, 60*time.Second)
			port := strconv.Itoa(freePort(t))
			args := append([]string{"-d", dev, "-g", strconv.Itoa(gid), "-p", port}, v.args...)
			client := make(chan outcome, 1)
			go func() {
				out, err := theirs(ctx, prog, append(args, "127.0.0.1")...)
				client <- outcome{out, err}
			}()
			out, err := ours(ctx, args...)
			c := <-client
			require.NoError(t, err, "ours: %s\ntheirs: %s", out, c.out)
			judge(t, out, c)
		})
	}
}

// judge checks that both sides say that they are content.
func judge(t *testing.T, ours string, theirs outcome) {
	require.NoError(t, theirs.err, theirs.out)
	require.NotContains(t, theirs.out, "invalid data", "their validation")
	require.Contains(t, theirs.out, "iters in")
	require.Contains(t, ours, "iters in")
	t.Logf("ours:\n%stheirs:\n%s", ours, theirs.out)
}

func TestBothSidesOurs(t *testing.T) {
	dev, _, _ := rig(t)
	for _, extra := range [][]string{{"-c", "-n", "200"}, {"-c", "-e", "-s", "70000", "-n", "20"}} {
		t.Run(fmt.Sprint(extra), func(t *testing.T) {
			ctx := testutil.Context(t, 60*time.Second)
			args := append([]string{"-d", dev, "-p", strconv.Itoa(freePort(t))}, extra...)
			server := make(chan outcome, 1)
			go func() {
				out, err := ours(ctx, args...)
				server <- outcome{out, err}
			}()
			out, err := ours(ctx, append(args, "127.0.0.1")...)
			s := <-server
			require.NoError(t, err, "client: %s", out)
			require.NoError(t, s.err, "server: %s", s.out)
			require.Contains(t, out, "every byte checked")
		})
	}
}

// A peer that vanishes ends the run with an error that says so, soon.
func TestPeerVanishes(t *testing.T) {
	dev, gid, prog := rig(t)
	for timeout := 4 * time.Second; !vanishes(t, dev, gid, prog, timeout); timeout *= 2 {
		require.Less(t, timeout, testutil.Limit)
	}
}

// vanishes kills a server once its client has met it, and reports false if the client's
// time-out came first.
func vanishes(t *testing.T, dev string, gid int, prog string, timeout time.Duration) bool {
	ctx := testutil.Context(t, testutil.Limit)
	args := []string{"-d", dev, "-g", strconv.Itoa(gid), "-p", strconv.Itoa(freePort(t)), "-n", "100000000"}
	server := exec.CommandContext(ctx, prog, args...)
	require.NoError(t, server.Start())
	stop := sync.OnceFunc(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	})
	defer stop()
	result := make(chan outcome, 1)
	met := make(chan struct{})
	go func() {
		c := command()
		c.SetOut(writerFunc(func(b []byte) {
			if bytes.Contains(b, []byte("remote address")) {
				close(met)
			}
		}))
		c.SetArgs(append(args, "--timeout", timeout.String(), "127.0.0.1"))
		result <- outcome{err: c.ExecuteContext(ctx)}
	}()
	select {
	case <-met:
	case r := <-result:
		require.ErrorIs(t, r.err, context.DeadlineExceeded, "before it met the peer")
		return false
	}
	stop()
	start := time.Now()
	r := <-result
	// A message that was on its way is not acknowledged; if instead it was the
	// peer's turn, nothing is outstanding here and only the time-out tells.
	if !errors.Is(r.err, verbs.ErrWCPeer) {
		require.ErrorIs(t, r.err, context.DeadlineExceeded, "%v", r.err)
	}
	require.Less(t, time.Since(start), testutil.Limit)
	return true
}

type writerFunc func([]byte)

func (f writerFunc) Write(b []byte) (int, error) { f(b); return len(b), nil }
