//go:build linux

package smoke

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
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

// pingpong runs both sides of ibv_rc_pingpong with validated data, until both end by
// themselves.
func pingpong(t *testing.T, s site, server, client int, args ...string) {
	t.Helper()
	port := freePort(t)
	srv := s.start(t, server, port, args...)
	srv.listens(t, port)
	cli := s.start(t, client, port, append(args, s.addrs[server])...)
	cli.ends(t, srv)
	srv.ends(t, cli)
}

// outlasted runs both sides for iters messages each way, with a client that waits for one
// more and is killed behind the server. A side whose last message lost its acknowledgement
// repeats that message, without limit (the program asks for 7 retries, which is infinity to
// rdma_rxe): it ends only if the other side is there to acknowledge it.
func outlasted(t *testing.T, s site, server, client, iters int, args ...string) {
	t.Helper()
	port := freePort(t)
	srv := s.start(t, server, port, append(args, "-n", fmt.Sprint(iters))...)
	srv.listens(t, port)
	cli := s.start(t, client, port, append(args, "-n", fmt.Sprint(iters+1), s.addrs[server])...)
	srv.ends(t, cli)
	cli.stays(t, srv)
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

// The same on a wire that may lose packets.
func TestPingpongOutlasted(t *testing.T) {
	s := here(t)
	s.only(t, "two")
	const iters, size = 100, 8192
	for _, dir := range [][2]int{{0, 1}, {1, 0}} {
		before := []uint64{received(t, s, 0), received(t, s, 1)}
		outlasted(t, s, dir[0], dir[1], iters, "-s", fmt.Sprint(size))
		for i := range before {
			require.GreaterOrEqual(t, received(t, s, i)-before[i], uint64(iters*size),
				"bytes received below %s", s.devices[i])
		}
	}
}

// Both guests run this test: node 0 serves, node 1 is the client, which outlasts the server.
// A second connection, for which node 0 listens once its server does, tells it of the end.
func TestPingpongBetweenGuests(t *testing.T) {
	s := here(t)
	s.only(t, "guests")
	const port, farewell, iters = "18515", "18516", 50
	ctx := testutil.Context(t, limit)
	if s.node == 0 {
		srv := s.start(t, 0, port, "-n", fmt.Sprint(iters))
		srv.listens(t, port)
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", ":"+farewell)
		require.NoError(t, err)
		context.AfterFunc(ctx, func() { l.Close() })
		c, err := l.Accept()
		l.Close() // a client of the next step waits for that step's
		require.NoError(t, err, "no client came")
		defer c.Close()
		srv.ends(t, nil)
		return
	}
	c := dial(ctx, t, net.JoinHostPort(s.peer, farewell))
	cli := s.start(t, 0, port, "-n", fmt.Sprint(iters+1), s.peer)
	go func() {
		select {
		case <-ctx.Done():
		case <-cli.done: // with an error
		}
		c.Close()
	}()
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Fatalf("the server did not end: %v\nclient:\n%sdevice:\n%s", err, cli.kill(), s.counters())
	}
	cli.stays(t, nil)
}

// dial connects to an address of the other guest, which may not listen yet.
func dial(ctx context.Context, t *testing.T, addr string) net.Conn {
	t.Helper()
	for {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
		if err == nil {
			return c
		}
		require.NoError(t, ctx.Err(), "%v", err)
		time.Sleep(50 * time.Millisecond) // sleep: the other guest opens the port in its own time
	}
}

// limit bounds each wait for a process; emulation under load is slow.
const limit = testutil.Limit

// process is one side of ibv_rc_pingpong.
type process struct {
	cmd  *exec.Cmd
	out  bytes.Buffer // complete behind done
	done chan struct{}
	err  error
	s    site
}

// start starts a side on device i, with validated data. Its output is written by the line:
// that of a process that is killed is complete, too.
func (s site) start(t *testing.T, i int, port string, args ...string) *process {
	t.Helper()
	p := &process{s: s, done: make(chan struct{})}
	p.cmd = exec.Command("stdbuf", append([]string{"-oL", "ibv_rc_pingpong",
		"-d", s.devices[i], "-g", gidIndex(t, s.devices[i], s.addrs[i]), "-p", port, "-c"}, args...)...)
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	require.NoError(t, p.cmd.Start())
	t.Cleanup(func() { p.kill() })
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	return p
}

// kill ends the process and returns what it printed.
func (p *process) kill() string {
	if p == nil {
		return "in the other guest\n"
	}
	_ = p.cmd.Process.Kill()
	<-p.done
	return p.out.String()
}

// ends waits until p has ended by itself, content.
func (p *process) ends(t *testing.T, other *process) {
	t.Helper()
	select {
	case <-p.done:
	case <-testutil.Context(t, limit).Done():
		state := p.s.counters()
		t.Fatalf("%v does not end:\n%sthe other side:\n%sdevices:\n%s", p.cmd.Args, p.kill(), other.kill(), state)
	}
	out := p.out.String()
	if p.err != nil {
		t.Fatalf("%v: %v:\n%sthe other side:\n%sdevices:\n%s", p.cmd.Args, p.err, out, other.kill(), p.s.counters())
	}
	require.Contains(t, out, "iters in")
	require.NotContains(t, out, "invalid data")
}

// stays kills p, which by itself does not end without an error.
func (p *process) stays(t *testing.T, other *process) {
	t.Helper()
	out := p.kill()
	var exit *exec.ExitError
	require.ErrorAs(t, p.err, &exit, "it was to wait for one more message:\n%s", out)
	require.Equal(t, syscall.SIGKILL, exit.Sys().(syscall.WaitStatus).Signal(), "%v: %v:\n%sthe other side:\n%s", p.cmd.Args, p.err, out, other.kill())
	require.Contains(t, out, "remote address")
}

// counters returns what rdma_rxe counted on each device: repeated messages, errors.
func (s site) counters() string {
	var b strings.Builder
	for _, d := range s.devices {
		b.WriteString(d)
		files, _ := filepath.Glob(filepath.Join("/sys/class/infiniband", d, "ports/1/hw_counters/*"))
		for _, f := range files {
			v, _ := os.ReadFile(f)
			fmt.Fprintf(&b, " %s=%s", filepath.Base(f), strings.TrimSpace(string(v)))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

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

// listens waits until p listens on port. It reads the kernel's table: ibv_rc_pingpong would
// take a connection for its peer.
func (p *process) listens(t *testing.T, port string) {
	t.Helper()
	n, err := strconv.Atoi(port)
	require.NoError(t, err)
	want := fmt.Sprintf(":%04X", n)
	ctx := testutil.Context(t, limit)
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
		select {
		case <-p.done:
			t.Fatalf("%v: %v before it listened:\n%s", p.cmd.Args, p.err, p.out.String())
		case <-ctx.Done():
			t.Fatalf("%v does not listen:\n%s", p.cmd.Args, p.kill())
		case <-time.After(20 * time.Millisecond): // deadline: until the next look
		}
	}
}
