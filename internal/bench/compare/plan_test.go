package compare

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/testutil"
)

// The command lines restrict each peer to one kind of link.
func TestPlansUseTheFabricOnly(t *testing.T) {
	t.Parallel()
	at := Place{Addr: "127.0.0.1", Device: "rxe0", GID: 1, Cores: []int{2, 5}}
	for _, c := range []struct {
		peer   *Peer
		fabric string
		want   []string // in environment and arguments
	}{
		{ucx, "shm", []string{"UCX_TLS=shm"}},
		{ucx, "tcp", []string{"UCX_TLS=tcp", "UCX_NET_DEVICES=lo"}},
		{ucx, "verbs", []string{"UCX_TLS=rc_v", "UCX_NET_DEVICES=rxe0:1"}},
		{libfabric, "shm", []string{"-p shm"}},
		{libfabric, "tcp", []string{"-p tcp"}},
		{openmpi, "shm", []string{"pml ob1", "btl self,vader", "taskset -c 2", "taskset -c 5"}},
		{openmpi, "tcp", []string{"pml ob1", "btl self,tcp", "btl_tcp_if_include lo", "osc ^sm"}},
		{mpich, "shm", []string{"UCX_TLS=shm", "taskset -c 2", "taskset -c 5"}},
		{mpich, "tcp", []string{"UCX_TLS=tcp", "MPIR_CVAR_NOLOCAL=1"}},
		{perftest, "verbs", []string{"-d rxe0", "-x 1"}},
	} {
		for _, k := range c.peer.Tests[c.fabric] {
			j := Job{Fabric: c.fabric, Place: at, Test: Test{k, 8}, Iters: 77, Port: 4711, Dir: "/nowhere"}
			p, err := c.peer.Plan(j)
			require.NoError(t, err)
			all := strings.Join(slices.Concat(p.Env, p.Server, p.Client), " ")
			for _, w := range c.want {
				require.Contains(t, all, w, "%s %s", c.peer.Name, k)
			}
			require.Contains(t, all, "77")
			if len(p.Server) > 0 {
				require.Contains(t, p.Server, "4711")
				require.Contains(t, p.Client, "4711")
			}
		}
	}
}

// Runs every installed peer with each of its programs: the first and the last kind of
// test.
func TestPeersInstalledHere(t *testing.T) {
	needProc(t)
	if testing.Short() {
		t.Skip("starts other libraries' programs")
	}
	for _, p := range Peers {
		dir, prepared := t.TempDir(), p.Prepare == nil
		for _, fabric := range []string{"shm", "tcp"} {
			kinds := p.Tests[fabric]
			if len(kinds) == 0 || p.Needs[0].Go != "" { // built programs: see gopeer_test.go
				continue
			}
			t.Run(p.Name+"/"+fabric, func(t *testing.T) {
				if err := p.Missing(fabric); err != nil {
					t.Skip(err)
				}
				ctx := testutil.Context(t, 5*time.Minute)
				if !prepared { // once for both fabrics
					require.NoError(t, p.Prepare(ctx, dir))
					prepared = true
				}
				run := &program{Peer: p, job: Job{Fabric: fabric, Place: Place{Addr: "127.0.0.1"}, Dir: dir, Limit: 2 * time.Second}}
				for _, k := range slices.Compact([]Kind{kinds[0], kinds[len(kinds)-1]}) {
					s, err := run.once(ctx, Test{k, 64}, p.Trial)
					if err != nil && strings.Contains(err.Error(), ErrStuck.Error()) {
						t.Logf("%s: %v: they spin for each other where the machine is busy", k, err)
						continue
					}
					require.NoError(t, err, k)
					require.Positive(t, s.Figure, k)
				}
			})
		}
	}
}

// The error of a failed compilation contains the compiler's message.
func TestCompileFails(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("false"); err != nil {
		t.Skip("no program false")
	}
	require.ErrorContains(t, compile("false", "raw.c")(testutil.Context(t, time.Minute), t.TempDir()), "raw.c")
	require.Error(t, compile("no-such-compiler", "raw.c")(testutil.Context(t, time.Minute), t.TempDir()))
	require.Error(t, compile("cc", "no-such.c")(testutil.Context(t, time.Minute), t.TempDir()))
}
