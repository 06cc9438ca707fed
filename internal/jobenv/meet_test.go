//go:build unix

package jobenv

import (
	"bufio"
	"context"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/internal/testutil"
	"github.com/seed33544411/rma/internal/wireup"
)

// private returns a directory that could be a user's XDG_RUNTIME_DIR.
func private(t *testing.T) string {
	dir, err := os.MkdirTemp("", "run")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// freePort returns a port that nobody listens on. It is below the ephemeral ports: a
// connection of another process could take one of those before the test listens.
func freePort(t *testing.T) string {
	for range 1000 {
		port := strconv.Itoa(16<<10 + rand.IntN(16<<10))
		if ln, err := net.Listen("tcp", ":"+port); err == nil {
			require.NoError(t, ln.Close())
			return port
		}
	}
	require.Fail(t, "no free port")
	return ""
}

// meet makes n ranks join by their environments, and exchange a value.
func meet(t *testing.T, n int, environment func(rank int) env) {
	var g errgroup.Group
	for r := range n {
		e := environment(r)
		g.Go(func() error {
			f, err := from(e)
			if err != nil {
				return err
			}
			f.Timeout = testutil.Limit
			j, err := wireup.Join(context.Background(), f.Config)
			if err != nil {
				return err
			}
			defer j.Close()
			all, err := j.AllGather(context.Background(), "x", []byte{byte(r)})
			if err == nil && string(all[n-1]) != string([]byte{byte(n - 1)}) {
				err = fmt.Errorf("rank %d got %v", r, all)
			}
			return err
		})
	}
	require.NoError(t, g.Wait())
}

func TestMeetOnOneHost(t *testing.T) {
	t.Parallel()
	for file, vars := range map[string][2]string{
		"openmpi-4.1-one-host": {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
		"slurm-22.05-one-node": {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"},
	} {
		run := private(t)
		const n = 5
		meet(t, n, func(rank int) env {
			return recorded(t, file, fmt.Sprintf("%s=%d", vars[0], rank), fmt.Sprintf("%s=%d", vars[1], n), "OMPI_COMM_WORLD_LOCAL_SIZE="+strconv.Itoa(n), "XDG_RUNTIME_DIR="+run)
		})
		left, err := os.ReadDir(filepath.Join(run, "rma"))
		require.NoError(t, err)
		require.Empty(t, left, "sockets left behind")
	}
}

// The variables of a Kubernetes Job; pod 0 is found by an address, because the test has no
// name service.
func TestMeetInKubernetes(t *testing.T) {
	t.Parallel()
	root := "RMA_ROOT=127.0.0.1:" + freePort(t)
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte(strings.TrimPrefix(token, "RMA_TOKEN=")+"\n"), 0o400))
	meet(t, 4, func(rank int) env {
		return recorded(t, "", fmt.Sprintf("JOB_COMPLETION_INDEX=%d", rank), "RMA_SIZE=4", fmt.Sprintf("HOSTNAME=solver-%d", rank), service, root, "RMA_TOKEN_FILE="+file)
	})
}

// Several hosts of an MPICH job: rank 0 listens, and publishes its address through PMI.
func TestMeetByPMI(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"mpich-4.0-one-host", "mpich-4.0-two-hosts"} {
		const n = 4
		run := private(t)
		server := &pmiServer{n: n, vals: map[string]string{}}
		var fds []int
		for range n {
			fds = append(fds, server.connect(t))
		}
		meet(t, n, func(rank int) env {
			return recorded(t, file, fmt.Sprintf("PMI_RANK=%d", rank), fmt.Sprintf("PMI_SIZE=%d", n), fmt.Sprintf("PMI_FD=%d", fds[rank]),
				map[bool]string{true: fmt.Sprintf("MPI_LOCALNRANKS=%d", n), false: "MPI_LOCALNRANKS=1"}[file == "mpich-4.0-one-host"], "XDG_RUNTIME_DIR="+run)
		})
		for _, fd := range fds {
			require.NoError(t, syscall.Close(fd), "the launcher's descriptor stays open")
		}
		server.wg.Wait()
		require.Equal(t, n, server.final)
		root, err := hex.DecodeString(server.vals[pmiKey])
		require.NoError(t, err)
		require.Equal(t, file == "mpich-4.0-one-host", strings.HasPrefix(string(root), "unix:"), string(root))
	}
}

// A program that starts at any moment inherits none of this process's connections with the
// launcher.
func TestNoChildInheritsTheConnectionWithTheLauncher(t *testing.T) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	require.NoError(t, err)
	defer syscall.Close(fds[0])
	defer syscall.Close(fds[1])
	c, err := connOf(fds[0]) // the first one has the runtime open descriptors
	require.NoError(t, err)
	require.NoError(t, c.Close())
	free, err := syscall.Dup(fds[0])
	require.NoError(t, err)
	require.NoError(t, syscall.Close(free))
	var g errgroup.Group
	var over atomic.Bool
	inherited := 0
	g.Go(func() error {
		for !over.Load() {
			syscall.ForkLock.Lock() // as who starts a program does
			flags, err := unix.FcntlInt(uintptr(free), unix.F_GETFD, 0)
			syscall.ForkLock.Unlock()
			if err == nil && flags&unix.FD_CLOEXEC == 0 {
				inherited++
			}
		}
		return nil
	})
	for range 2000 {
		if c, err = connOf(fds[0]); err == nil {
			err = c.Close()
		}
		if err != nil {
			break
		}
	}
	over.Store(true)
	require.NoError(t, g.Wait())
	require.NoError(t, err)
	require.Zero(t, inherited)
}

// pmiServer is the launcher's side of PMI-1, like Hydra's.
type pmiServer struct {
	n  int
	wg sync.WaitGroup

	mu    sync.Mutex
	vals  map[string]string
	in    []net.Conn
	final int
	twist func(cmd, answer string) string
}

// connect returns the descriptor of a new process.
func (s *pmiServer) connect(t *testing.T) int {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	require.NoError(t, err)
	f := os.NewFile(uintptr(fds[0]), "")
	conn, err := net.FileConn(f)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	s.wg.Go(func() {
		defer conn.Close()
		for in := bufio.NewScanner(conn); in.Scan(); {
			for _, a := range s.answer(conn, in.Text()) {
				fmt.Fprintf(a.to, "%s\n", a.line)
			}
		}
	})
	return fds[1]
}

type pmiAnswer struct {
	to   net.Conn
	line string
}

func (s *pmiServer) answer(conn net.Conn, line string) (out []pmiAnswer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kv := map[string]string{}
	for _, f := range strings.Fields(line) {
		k, v, _ := strings.Cut(f, "=")
		kv[k] = v
	}
	a := ""
	switch kv["cmd"] {
	case "init":
		a = "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0"
	case "get_my_kvsname":
		a = "cmd=my_kvsname kvsname=kvs_0"
	case "put":
		s.vals[kv["key"]] = kv["value"]
		a = "cmd=put_result rc=0 msg=success"
	case "get":
		a = "cmd=get_result rc=-1 msg=key_not_found"
		if v, ok := s.vals[kv["key"]]; ok && kv["kvsname"] == "kvs_0" {
			a = "cmd=get_result rc=0 msg=success value=" + v
		}
	case "barrier_in":
		if s.in = append(s.in, conn); len(s.in) < s.n {
			return nil
		}
		for _, c := range s.in {
			out = append(out, pmiAnswer{c, "cmd=barrier_out rc=0"})
		}
		return out
	case "finalize":
		s.final++
		a = "cmd=finalize_ack rc=0"
	}
	if s.twist != nil {
		a = s.twist(kv["cmd"], a)
	}
	return []pmiAnswer{{conn, a}}
}

// A short secret of the user is refused, although rank 0 could generate one.
func TestPMIWithAShortSecret(t *testing.T) {
	t.Parallel()
	s := &pmiServer{n: 1, vals: map[string]string{}}
	fd := s.connect(t)
	f, err := from(recorded(t, "mpich-4.0-two-hosts", "PMI_RANK=0", fmt.Sprintf("PMI_FD=%d", fd), "RMA_TOKEN=00ff"))
	require.NoError(t, err)
	_, err = wireup.Join(t.Context(), f.Config)
	require.ErrorIs(t, err, wireup.ErrNoToken)
	require.NoError(t, syscall.Close(fd))
	s.wg.Wait()
}

func TestHostilePMI(t *testing.T) {
	t.Parallel()
	for cmd, line := range map[string]string{
		"init": "cmd=response_to_init rc=-1", "get_my_kvsname": "hello", "put": strings.Repeat("x", 2*maxPMILine), "finalize": "", "get": "cmd=get_result rc=0 value=zz",
	} {
		s := &pmiServer{n: 1, vals: map[string]string{pmiKey: "00"}, twist: func(c, a string) string {
			if c == cmd {
				return line
			}
			return a
		}}
		rank := 0
		if cmd == "get" {
			rank = 1
		}
		fd := s.connect(t)
		f, err := from(recorded(t, "mpich-4.0-two-hosts", fmt.Sprintf("PMI_RANK=%d", rank), fmt.Sprintf("PMI_FD=%d", fd)))
		require.NoError(t, err)
		f.Timeout = testutil.Limit
		_, err = wireup.Join(t.Context(), f.Config)
		require.ErrorContains(t, err, "ask the launcher (PMI)", cmd)
		require.NoError(t, syscall.Close(fd))
		s.wg.Wait()
	}
	// A rank that never joins.
	s := &pmiServer{n: 2, vals: map[string]string{}}
	fd := s.connect(t)
	f, err := from(recorded(t, "mpich-4.0-two-hosts", fmt.Sprintf("PMI_FD=%d", fd)))
	require.NoError(t, err)
	f.Timeout = 50 * time.Millisecond
	_, err = wireup.Join(t.Context(), f.Config)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "not all processes that the launcher started have joined")
	require.NoError(t, syscall.Close(fd))
	s.wg.Wait()
	// The descriptor is not a socket.
	f, err = from(recorded(t, "mpich-4.0-two-hosts", fmt.Sprintf("PMI_FD=%d", 1<<20)))
	require.NoError(t, err)
	_, err = wireup.Join(t.Context(), f.Config)
	require.ErrorIs(t, err, wireup.ErrEnvironment)
	require.ErrorContains(t, err, "is not an open socket")
}

func TestErrorsOfAJobThatRankZeroServes(t *testing.T) {
	t.Parallel()
	root := "RMA_ROOT=127.0.0.1:" + freePort(t)
	join := func(changes ...string) (*wireup.Job, error) {
		f, err := from(recorded(t, "slurm-22.05-two-nodes", append([]string{root, token, "RMA_TIMEOUT=3m"}, changes...)...))
		require.NoError(t, err)
		return wireup.Join(t.Context(), f.Config)
	}
	first, err := join("SLURM_PROCID=0")
	require.NoError(t, err)
	_, err = join("SLURM_PROCID=0")
	require.ErrorIs(t, err, syscall.EADDRINUSE)
	second, err := join("SLURM_PROCID=1")
	require.NoError(t, err)
	for want, changes := range map[error][]string{
		wireup.ErrDuplicateRank: {"SLURM_PROCID=1"},
		wireup.ErrSize:          {"SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=5"},
		wireup.ErrToken:         {"SLURM_PROCID=2", "RMA_TOKEN=ff0102030405060708090a0b0c0d0e0f"},
	} {
		_, err = join(changes...)
		require.ErrorIs(t, err, want)
	}
	_, err = join("SLURM_PROCID=2", "RMA_ROOT=127.0.0.1:"+freePort(t), "RMA_TIMEOUT=50ms")
	require.ErrorIs(t, err, wireup.ErrTimeout)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond) // deadline: it has to end
	defer cancel()
	require.ErrorContains(t, first.Barrier(ctx, "x"), "ranks 2, 3 of 4 have not joined, rank 1 has not called it")
	first.Abort("end of the test")
	require.NoError(t, second.Close())
	require.NoError(t, first.Close())
}

func TestDirectoryOfSockets(t *testing.T) {
	t.Parallel()
	run := private(t)
	e := recorded(t, "", "XDG_RUNTIME_DIR="+run)
	dir, err := socketDir(e)
	require.NoError(t, err)
	require.Equal(t, filepath.Join(run, "rma"), dir)
	require.NoError(t, os.Chmod(dir, 0o755))
	require.ErrorIs(t, ownDir(dir), ErrUnsafeDir)
	other, err := socketDir(e)
	require.NoError(t, err)
	require.NotEqual(t, dir, other)
	require.NoError(t, os.Chmod(run, 0o755))
	_, err = socketDir(e)
	require.NoError(t, err, "another place will do")

	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(private(t), link))
	require.ErrorIs(t, ownDir(link), ErrUnsafeDir)
	_, err = makeDir(filepath.Join(t.TempDir(), "none", "x"))
	require.ErrorIs(t, err, os.ErrNotExist)
	if os.Getuid() == 0 {
		theirs := private(t)
		require.NoError(t, os.Chown(theirs, 65534, 65534))
		require.ErrorIs(t, ownDir(theirs), ErrUnsafeDir)
	}
}

// A socket that a crashed process left is taken over; one in use is not.
func TestSocketsLeftBehind(t *testing.T) {
	t.Parallel()
	path := filepath.Join(private(t), "s")
	ln, err := net.Listen("unix", path)
	require.NoError(t, err)
	ln.(*net.UnixListener).SetUnlinkOnClose(false)
	_, err = listen("unix:" + path)
	require.ErrorIs(t, err, wireup.ErrDuplicateRank)
	require.NoError(t, ln.Close())
	again, err := listen("unix:" + path)
	require.NoError(t, err)
	require.NoError(t, again.Close())
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	_, err = listen("unix:" + path)
	require.Error(t, err, "no socket: not ours to remove")
	require.FileExists(t, path)
}

func TestWhereRankZeroListens(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	for root, want := range map[string]string{"localhost:" + port: "127.0.0.1:" + port, "127.0.0.1:" + port: "127.0.0.1:" + port, "a.name:" + port: "[::]:" + port, "192.0.2.77:" + port: "[::]:" + port} {
		ln, err := listen(root)
		require.NoError(t, err)
		require.Equal(t, want, ln.Addr().String())
		require.NoError(t, ln.Close())
	}
	for _, root := range []string{"nonsense", "a:b:c:d", "host:notaport"} {
		_, err := listen(root)
		require.Error(t, err, root)
	}
}
