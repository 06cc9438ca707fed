//go:build linux

package smoke

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/internal/testutil"
)

// site is the harness's description of the guest.
type site struct {
	kind, topology string
	devices, addrs []string
	node           int
	peer           string
}

func here(t *testing.T) site {
	t.Helper()
	kind := os.Getenv("RMA_SOFTROCE")
	if kind == "" {
		testutil.NoRDMA(t, "not inside the softroce harness: run make softroce")
	}
	s := site{
		kind:     kind,
		topology: os.Getenv("RMA_SOFTROCE_TOPOLOGY"),
		devices:  strings.Split(os.Getenv("RMA_SOFTROCE_DEVICES"), ","),
		addrs:    strings.Split(os.Getenv("RMA_SOFTROCE_ADDRS"), ","),
		peer:     os.Getenv("PEER"),
	}
	require.Equal(t, len(s.devices), len(s.addrs))
	if s.topology == "guests" {
		var err error
		s.node, err = strconv.Atoi(os.Getenv("NODE"))
		require.NoError(t, err, "NODE")
	}
	return s
}

func (s site) only(t *testing.T, topologies ...string) {
	t.Helper()
	for _, w := range topologies {
		if s.topology == w {
			return
		}
	}
	t.Skipf("for topology %v, this is %s", topologies, s.topology)
}

func TestDevicesAreTheOnesPromised(t *testing.T) {
	s := here(t)
	want := map[string]int{"one": 1, "two": 2, "guests": 1}[s.topology]
	require.Len(t, s.devices, want)
	found := testutil.RequireRDMA(t)
	for i, d := range s.devices {
		require.Contains(t, found, d)
		state, err := os.ReadFile(filepath.Join("/sys/class/infiniband", d, "ports/1/state"))
		require.NoError(t, err)
		require.Contains(t, string(state), "ACTIVE")
		gidIndex(t, d, s.addrs[i])
	}
}

func TestLimits(t *testing.T) {
	here(t)
	var l unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_MEMLOCK, &l))
	require.Equal(t, uint64(unix.RLIM_INFINITY), l.Cur, "memlock")
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &l))
	require.GreaterOrEqual(t, l.Cur, uint64(65536), "open files")
}

// The host's files are visible, and writes to them do not reach the host: in a guest the
// working directory lies on an overlay.
func TestWritesStayInTheGuest(t *testing.T) {
	s := here(t)
	if s.kind == "native" {
		t.Skip("native runs on the host's own files")
	}
	_, err := os.Stat("smoke_test.go")
	require.NoError(t, err, "the working directory is the package's, as under go test")
	var st unix.Statfs_t
	require.NoError(t, unix.Statfs(".", &st))
	require.EqualValues(t, unix.OVERLAYFS_SUPER_MAGIC, st.Type)
	require.NoError(t, os.WriteFile("written-in-the-guest", []byte("x"), 0o644))
	require.NoError(t, os.Remove("written-in-the-guest"))
}

// pingpong runs both sides of ibv_rc_pingpong with validated data.
func pingpong(t *testing.T, s site, server, client int, args ...string) {
	t.Helper()
	port := freePort(t)
	side := func(i int, more ...string) *process {
		a := append([]string{"-d", s.devices[i], "-g", gidIndex(t, s.devices[i], s.addrs[i]), "-p", port, "-c"}, args...)
		return start(t, "ibv_rc_pingpong", append(a, more...)...)
	}
	srv := side(server)
	waitListening(t, port)
	cli := side(client, s.addrs[server])
	require.NoError(t, cli.wait(), "client:\n%s\nserver:\n%s", cli.out, srv.out)
	require.NoError(t, srv.wait(), "server:\n%s", srv.out)
	require.Contains(t, cli.out.String(), "bytes in")
}

func TestPingpongOneDevice(t *testing.T) {
	s := here(t)
	s.only(t, "one", "two")
	pingpong(t, s, 0, 0, "-n", "100")
}

// Packets between the two devices cross the veth pair, as its counters show.
func TestPingpongCrossesTheWire(t *testing.T) {
	s := here(t)
	s.only(t, "two")
	const iters, size = 50, 8192
	for _, dir := range [][2]int{{0, 1}, {1, 0}} {
		before := []uint64{received(t, s, 0), received(t, s, 1)}
		pingpong(t, s, dir[0], dir[1], "-n", fmt.Sprint(iters), "-s", fmt.Sprint(size))
		for i := range before {
			require.GreaterOrEqual(t, received(t, s, i)-before[i], uint64(iters*size),
				"bytes received below %s", s.devices[i])
		}
	}
}

// Both guests run this test: node 0 serves, node 1 is the client.
func TestPingpongBetweenGuests(t *testing.T) {
	s := here(t)
	s.only(t, "guests")
	const port = "18515"
	args := []string{"-d", s.devices[0], "-g", gidIndex(t, s.devices[0], s.addrs[0]), "-p", port, "-n", "50", "-c"}
	if s.node == 0 {
		p := start(t, "ibv_rc_pingpong", args...)
		require.NoError(t, p.wait(), "%s", p.out)
		return
	}
	deadline := time.Now().Add(limit)
	for {
		p := start(t, "ibv_rc_pingpong", append(args, s.peer)...)
		err := p.wait()
		if err == nil {
			return
		}
		// the server may not listen yet; any other failure is one of the test
		require.Contains(t, p.out.String(), "Couldn't connect", "client: %v", err)
		require.True(t, time.Now().Before(deadline), "no server at %s", s.peer)
		time.Sleep(50 * time.Millisecond) // sleep: the other guest starts its server in its own time
	}
}

// limit bounds each helper process; emulation under load is slow.
const limit = testutil.Limit

type process struct {
	cmd *exec.Cmd
	out *bytes.Buffer
}

func start(t *testing.T, name string, args ...string) *process {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	p := &process{exec.CommandContext(ctx, name, args...), new(bytes.Buffer)}
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	require.NoError(t, p.cmd.Start())
	t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	return p
}

func (p *process) wait() error { return p.cmd.Wait() }

func gidIndex(t *testing.T, dev, addr string) string {
	t.Helper()
	ip := net.ParseIP(addr).To4()
	require.NotNil(t, ip, "address %q of %s", addr, dev)
	want := fmt.Sprintf("0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x", ip[0], ip[1], ip[2], ip[3])
	for i := range 16 {
		gid, _ := os.ReadFile(fmt.Sprintf("/sys/class/infiniband/%s/ports/1/gids/%d", dev, i))
		if strings.TrimSpace(string(gid)) == want {
			return strconv.Itoa(i)
		}
	}
	t.Fatalf("%s has no GID for %s", dev, addr)
	return ""
}

// received returns the number of bytes received below device i.
func received(t *testing.T, s site, i int) uint64 {
	t.Helper()
	parent, err := os.ReadFile(filepath.Join("/sys/class/infiniband", s.devices[i], "parent"))
	require.NoError(t, err)
	b, err := os.ReadFile(filepath.Join("/sys/class/net", strings.TrimSpace(string(parent)), "statistics/rx_bytes"))
	require.NoError(t, err)
	n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
	require.NoError(t, err)
	return n
}

func freePort(t *testing.T) string {
	l, err := net.Listen("tcp", ":0")
	require.NoError(t, err)
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	return port
}

// waitListening waits until a process listens on port. It reads the kernel's table:
// ibv_rc_pingpong would take a connection for its peer.
func waitListening(t *testing.T, port string) {
	t.Helper()
	n, err := strconv.Atoi(port)
	require.NoError(t, err)
	want := fmt.Sprintf(":%04X", n)
	deadline := time.Now().Add(limit)
	for {
		for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
			b, _ := os.ReadFile(table)
			for _, l := range strings.Split(string(b), "\n") {
				f := strings.Fields(l)
				if len(f) > 3 && strings.HasSuffix(f[1], want) && f[3] == "0A" { // LISTEN
					return
				}
			}
		}
		require.True(t, time.Now().Before(deadline), "nothing listens on port %s", port)
		time.Sleep(20 * time.Millisecond) // sleep: another process opens the port in its own time
	}
}
