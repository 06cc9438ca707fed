package jobenv

import (
	"bytes"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/testutil"
	"github.com/seed33544411/rma/internal/wireup"
)

func TestMain(m *testing.M) { testutil.Main(m) }

// recorded returns an environment of testdata, recorded under that release of a launcher,
// with changes: "name=value", or "name" to remove it.
func recorded(t testing.TB, file string, changes ...string) env {
	m := map[string]string{}
	if file != "" {
		text, err := os.ReadFile(filepath.Join("testdata", file+".env"))
		require.NoError(t, err)
		for line := range bytes.Lines(text) {
			k, v, _ := strings.Cut(strings.TrimSpace(string(line)), "=")
			m[k] = v
		}
	}
	for _, c := range changes {
		k, v, has := strings.Cut(c, "=")
		delete(m, k)
		if has {
			m[k] = v
		}
	}
	return func(name string) string { return m[name] }
}

const (
	token    = "RMA_TOKEN=000102030405060708090a0b0c0d0e0f"
	pod      = "HOSTNAME=solver-3"
	index    = "JOB_COMPLETION_INDEX=3"
	size     = "RMA_SIZE=8"
	service  = "RMA_SERVICE=solver-ranks"
	explicit = "RMA_ROOT=node7:7000"
)

func TestRecordedEnvironments(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		file    string
		changes []string

		launcher                string
		rank, size, local, here int
		root                    string // regular expression
		prepares                bool   // a socket, a listener or the launcher
		secret                  bool
	}{
		"Open MPI, one host":              {file: "openmpi-4.1-one-host", launcher: "openmpi", rank: 1, size: 2, local: 1, here: 2, prepares: true, secret: true},
		"Open MPI, two hosts":             {file: "openmpi-4.1-two-hosts", launcher: "openmpi", rank: 1, size: 2, root: `^198\.51\.100\.7:6[1-4]\d\d\d$`, secret: true},
		"Open MPI in a Slurm step":        {file: "openmpi-4.1-one-host", changes: []string{"SLURM_PROCID=0", "SLURM_STEP_ID=0", "SLURM_NTASKS=1"}, launcher: "openmpi", rank: 1, size: 2, local: 1, here: 2, prepares: true, secret: true},
		"Open MPI, two hosts, RMA_ROOT":   {file: "openmpi-4.1-two-hosts", changes: []string{explicit}, launcher: "openmpi", rank: 1, size: 2, root: "^node7:7000$", secret: true},
		"Open MPI, rank 0 at RMA_ROOT":    {file: "openmpi-4.1-two-hosts", changes: []string{explicit, "OMPI_COMM_WORLD_RANK=0"}, launcher: "openmpi", size: 2, root: "^node7:7000$", prepares: true, secret: true},
		"Open MPI, somebody else serves":  {file: "openmpi-4.1-two-hosts", changes: []string{explicit, "OMPI_COMM_WORLD_RANK=0", "RMA_SERVE=0"}, launcher: "openmpi", size: 2, root: "^node7:7000$", secret: true},
		"MPICH, one host":                 {file: "mpich-4.0-one-host", launcher: "mpich", rank: 1, size: 2, local: 1, here: 2, prepares: true},
		"MPICH, two hosts":                {file: "mpich-4.0-two-hosts", launcher: "mpich", rank: 1, size: 2, prepares: true},
		"MPICH, two hosts, RMA_ROOT":      {file: "mpich-4.0-two-hosts", changes: []string{explicit, token}, launcher: "mpich", rank: 1, size: 2, root: "^node7:7000$", secret: true},
		"Slurm, one node":                 {file: "slurm-22.05-one-node", launcher: "slurm", rank: 3, size: 4, local: 3, here: 4, prepares: true},
		"Slurm, two nodes":                {file: "slurm-22.05-two-nodes", changes: []string{token}, launcher: "slurm", rank: 3, size: 4, root: `^n1:6[1-4]\d\d\d$`, secret: true},
		"Slurm, two nodes, insecure":      {file: "slurm-22.05-two-nodes", changes: []string{"RMA_INSECURE=1"}, launcher: "slurm", rank: 3, size: 4, root: `^n1:6[1-4]\d\d\d$`},
		"Slurm, rank 0 on the first node": {file: "slurm-22.05-two-nodes", changes: []string{token, "SLURM_PROCID=0", "SLURMD_NODENAME=n1"}, launcher: "slurm", size: 4, root: `^n1:6[1-4]\d\d\d$`, prepares: true, secret: true},
		"srun --mpi=pmi2":                 {file: "slurm-22.05-pmi2", launcher: "mpich", rank: 2, size: 3, here: 3, prepares: true},
		"a batch script":                  {file: "slurm-22.05-sbatch", launcher: "none", size: 1},
		"Kubernetes":                      {changes: []string{index, size, service, pod, token}, launcher: "kubernetes", rank: 3, size: 8, root: `^solver-0\.solver-ranks:7117$`, secret: true},
		"Kubernetes, port":                {changes: []string{index, size, service + ":99", pod, token}, launcher: "kubernetes", rank: 3, size: 8, root: `^solver-0\.solver-ranks:99$`, secret: true},
		"Kubernetes, pod 0":               {changes: []string{"JOB_COMPLETION_INDEX=0", size, service, "HOSTNAME=solver-0", token}, launcher: "kubernetes", size: 8, root: `^solver-0\.solver-ranks:7117$`, prepares: true, secret: true},
		"Kubernetes, RMA_ROOT":            {changes: []string{index, size, explicit, token}, launcher: "kubernetes", rank: 3, size: 8, root: "^node7:7000$", secret: true},
		"Kubernetes, one pod":             {changes: []string{"JOB_COMPLETION_INDEX=0", "RMA_SIZE=1"}, launcher: "kubernetes", size: 1},
		"an indexed Job of others":        {changes: []string{index, pod}, launcher: "none", size: 1},
		"nothing":                         {launcher: "none", size: 1},
		"forced to be alone":              {file: "openmpi-4.1-one-host", changes: []string{"RMA_LAUNCHER=none", "RMA_ROOT=x:1"}, launcher: "none", size: 1},
		"forced to be Slurm's":            {file: "slurm-22.05-pmi2", changes: []string{"RMA_LAUNCHER=slurm"}, launcher: "slurm", rank: 2, size: 3, local: 2, here: 3, prepares: true},
		"rmarun inside mpirun":            {file: "openmpi-4.1-one-host", changes: []string{"RMA_RANK=1", "RMA_SIZE=5", "RMA_ROOT=unix:/x", token}, launcher: "rma", rank: 1, size: 5, root: "^unix:/x$", secret: true},
		"by hand, rank 0 serves":          {changes: []string{"RMA_RANK=0", "RMA_SIZE=5", explicit, token, "RMA_SERVE=1"}, launcher: "rma", size: 5, root: "^node7:7000$", prepares: true, secret: true},
		"by hand, alone, serves":          {changes: []string{"RMA_RANK=0", "RMA_SIZE=1", explicit, token, "RMA_SERVE=1"}, launcher: "rma", size: 1, root: "^node7:7000$", prepares: true, secret: true},
		"by hand, rank 1":                 {changes: []string{"RMA_RANK=1", "RMA_SIZE=5", explicit, token, "RMA_SERVE=1"}, launcher: "rma", rank: 1, size: 5, root: "^node7:7000$", secret: true},
	} {
		f, err := from(recorded(t, c.file, c.changes...))
		require.NoError(t, err, name)
		require.Equal(t, c.launcher, f.Launcher, name)
		require.Equal(t, []int{c.rank, c.size, c.local, c.here}, []int{f.Rank, f.Size, f.LocalRank, f.LocalSize}, "%s: rank, size, local rank and size", name)
		require.Equal(t, c.prepares, f.Prepare != nil, name)
		require.Equal(t, c.secret, len(f.Token) >= wireup.MinToken, name)
		if c.root == "" {
			require.Empty(t, f.Root, name)
		} else {
			require.Regexp(t, c.root, f.Root, name)
		}
	}
}

func TestRefusedEnvironments(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		file    string
		changes []string
		is      error
		says    string
	}{
		"Open MPI, rank 0 elsewhere":   {"openmpi-4.1-two-hosts", []string{"OMPI_COMM_WORLD_RANK=0"}, ErrNoRoot, "rank 0 does not run on the host of mpirun, so RMA_ROOT=host:port has to be set"},
		"Open MPI 5, two hosts":        {"openmpi-4.1-two-hosts", []string{"OMPI_MCA_orte_hnp_uri"}, ErrNoRoot, "under openmpi"},
		"Slurm, rank 0 elsewhere":      {"slurm-22.05-two-nodes", []string{token, "SLURM_PROCID=0"}, ErrNoRoot, "rank 0 runs on n2, not on the first node, n1"},
		"Slurm, bad list":              {"slurm-22.05-two-nodes", []string{token, "SLURM_STEP_NODELIST=n[1-"}, wireup.ErrEnvironment, "not a list of hosts"},
		"Slurm, no list":               {"slurm-22.05-two-nodes", []string{token, "SLURM_STEP_NODELIST"}, ErrNoRoot, "SLURM_STEP_NODELIST is missing"},
		"Slurm, no rank":               {"slurm-22.05-one-node", []string{"SLURM_PROCID=4"}, wireup.ErrEnvironment, `SLURM_PROCID="4": want 0 … 3`},
		"MPICH over a port":            {"", []string{"PMI_PORT=vm:40241", "PMI_ID=0", "MPI_LOCALNRANKS=2"}, wireup.ErrEnvironment, "without -pmi-port"},
		"Kubernetes, no size":          {"", []string{index, service, pod}, wireup.ErrEnvironment, `RMA_SIZE=""`},
		"Kubernetes, no service":       {"", []string{index, size, pod, token}, ErrNoRoot, "RMA_SERVICE does not name"},
		"Kubernetes, no pod":           {"", []string{index, size, service, token}, ErrNoRoot, `HOSTNAME="" is not`},
		"unknown launcher":             {"", []string{"RMA_LAUNCHER=pbs"}, wireup.ErrEnvironment, "want auto, none, rma, openmpi"},
		"another launcher than forced": {"mpich-4.0-one-host", []string{"RMA_LAUNCHER=slurm"}, wireup.ErrEnvironment, "SLURM_PROCID"},
		"half a description":           {"", []string{explicit}, wireup.ErrEnvironment, "RMA_SIZE"},
		"bad time-out":                 {"slurm-22.05-one-node", []string{"RMA_TIMEOUT=soon"}, wireup.ErrEnvironment, "RMA_TIMEOUT"},
		"bad insecure":                 {"slurm-22.05-two-nodes", []string{"RMA_INSECURE=maybe"}, wireup.ErrEnvironment, "RMA_INSECURE"},
		"bad root":                     {"slurm-22.05-two-nodes", []string{"RMA_ROOT=here"}, wireup.ErrEnvironment, "server address"},
		"half of TLS":                  {"slurm-22.05-two-nodes", []string{"RMA_TLS_CA=x"}, wireup.ErrEnvironment, "all are needed"},
	} {
		_, err := from(recorded(t, c.file, c.changes...))
		require.ErrorIs(t, err, c.is, name)
		require.ErrorIs(t, err, wireup.ErrEnvironment, name)
		require.ErrorContains(t, err, c.says, name)
	}
}

// Under every launcher, a job that other users can reach needs a secret.
func TestEveryLauncherNeedsASecret(t *testing.T) {
	t.Parallel()
	const hand, short = "RMA_RANK=1", "RMA_TOKEN=00ff"
	for name, c := range map[string]struct {
		file    string
		changes []string
		says    string
	}{
		"by hand":                    {"", []string{hand, "RMA_SIZE=2", explicit}, "RMA_TOKEN on all ranks"},
		"by hand, loopback":          {"", []string{hand, "RMA_SIZE=2", "RMA_ROOT=127.0.0.1:7117"}, "other users can reach 127.0.0.1:7117"},
		"by hand, short secret":      {"", []string{hand, "RMA_SIZE=2", "RMA_ROOT=localhost:7117", short}, "at least 16 bytes and has one of 2"},
		"by hand, several roots":     {"", []string{hand, "RMA_SIZE=2", "RMA_ROOT=unix:/x,[::1]:7117"}, "other users can reach [::1]:7117"},
		"by hand, rank 0":            {"", []string{"RMA_RANK=0", "RMA_SIZE=2", "RMA_ROOT=127.0.0.1:0", "RMA_SERVE=1"}, "other users can reach 127.0.0.1:"},
		"forced":                     {"openmpi-4.1-one-host", []string{"RMA_LAUNCHER=rma", hand, "RMA_SIZE=2", explicit}, "RMA_TOKEN on all ranks"},
		"Open MPI 5":                 {"openmpi-4.1-two-hosts", []string{"OMPI_MCA_orte_precondition_transports", explicit}, "mpirun -x RMA_TOKEN"},
		"Open MPI, loopback":         {"openmpi-4.1-one-host", []string{"OMPI_MCA_orte_precondition_transports", "RMA_ROOT=127.0.0.1:7117"}, "mpirun -x RMA_TOKEN"},
		"Open MPI, short secret":     {"openmpi-4.1-two-hosts", []string{short}, "has one of 2"},
		"Slurm, two nodes":           {"slurm-22.05-two-nodes", nil, "export RMA_TOKEN=$(openssl rand -hex 32) before srun"},
		"Slurm, short secret":        {"slurm-22.05-two-nodes", []string{short}, "at least 16 bytes"},
		"Slurm, second root":         {"slurm-22.05-one-node", []string{"RMA_ROOT=unix:/x,node7:7000"}, "other users can reach node7:7000"},
		"MPICH, RMA_ROOT":            {"mpich-4.0-two-hosts", []string{explicit}, "without RMA_ROOT the launcher brings one"},
		"Kubernetes":                 {"", []string{index, size, service, pod}, "a Secret as RMA_TOKEN"},
		"insecure, but not this one": {"slurm-22.05-two-nodes", []string{"RMA_INSECURE=0"}, "RMA_INSECURE=1 on a trusted network"},
	} {
		f, err := from(recorded(t, c.file, c.changes...))
		require.NoError(t, err, name)
		_, err = wireup.Join(t.Context(), f.Config)
		require.ErrorIs(t, err, wireup.ErrNoToken, name)
		require.ErrorIs(t, err, wireup.ErrEnvironment, name)
		require.ErrorContains(t, err, c.says, name)
	}
}

func TestFirstHost(t *testing.T) {
	t.Parallel()
	for list, want := range map[string]string{
		"vm": "vm", "n[1-2]": "n1", "node[01-03,7]": "node01", "node[7,01-03],x": "node7", "a,b[1-2]": "a",
		"r[10-20]c[003-7]-ib": "r10c003-ib", "gpu-01.cluster": "gpu-01.cluster", "x[5]": "x5",
	} {
		got, err := firstHost(list)
		require.NoError(t, err, list)
		require.Equal(t, want, got)
	}
	for _, list := range []string{"", ",", "n[", "n[]", "n[a-b]", "n[3-1]", "n]", "n[1-2", "a b", "n[-1]", "n[1-x]", "x/y", "n[99999999999]"} {
		_, err := firstHost(list)
		require.ErrorIs(t, err, wireup.ErrEnvironment, list)
	}
}

func FuzzFirstHost(f *testing.F) {
	for _, s := range []string{"node[01-03,7],x", "n[1-2]", "r[1-2]c[0-7]", "n[", "a,b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, list string) {
		host, err := firstHost(list)
		if (err == nil) == (host == "") {
			t.Fatalf("%q: host %q, error %v", list, host, err)
		}
		if strings.ContainsAny(host, "[],/: ") || len(host) > len(list) {
			t.Fatalf("%q: host %q", list, host)
		}
	})
}

func TestHostsOfMpirun(t *testing.T) {
	t.Parallel()
	addrs := func(texts ...string) (all []netip.Addr) {
		for _, s := range texts {
			all = append(all, netip.MustParseAddr(s))
		}
		return all
	}
	for uri, want := range map[string][]netip.Addr{
		"751501312.0;tcp://192.0.2.2:50383;tcp6://[fd00::2]:48435": addrs("192.0.2.2"),
		"1.0;tcp://10.0.0.1,192.0.2.2,127.0.0.1:50383":             addrs("10.0.0.1", "192.0.2.2"),
		"1.0;tcp6://[fd00::2,fd00::3]:48435":                       addrs("fd00::2", "fd00::3"),
		"":                                                         nil, "1.0;usock": nil, "tcp://": nil, "tcp://nonsense:1": nil,
	} {
		require.Equal(t, want, hnpHosts(uri), uri)
	}
}

// Different jobs meet at different places.
func TestPlacesDiffer(t *testing.T) {
	t.Parallel()
	roots := map[string]string{}
	for _, changes := range [][]string{{}, {"SLURM_JOB_ID=99"}, {"SLURM_STEP_ID=1"}, {"SLURM_CLUSTER_NAME=u"}, {"SLURM_STEP_LAUNCHER_PORT=1"}} {
		f, err := from(recorded(t, "slurm-22.05-two-nodes", append(changes, token)...))
		require.NoError(t, err)
		require.Empty(t, roots[f.Root], "%v and %s", changes, roots[f.Root])
		roots[f.Root] = strings.Join(changes, " ") + " "
	}
}

// The manifest of the examples describes a job, and its parts agree.
func TestManifest(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../examples/kubernetes/job.yaml")
	require.NoError(t, err)
	one := func(pattern string) string {
		all := regexp.MustCompile(`(?m)`+pattern).FindAllStringSubmatch(string(text), -1)
		require.Len(t, all, 1, pattern)
		return all[0][1]
	}
	n, err := strconv.Atoi(one(`^  completions: (\d+)`))
	require.NoError(t, err)
	require.Equal(t, strconv.Itoa(n), one(`^  parallelism: (\d+)`))
	require.Equal(t, "Indexed", one(`completionMode: (\w+)`))
	vars := []string{"RMA_TOKEN=000102030405060708090a0b0c0d0e0f", "HOSTNAME=hello-1", "JOB_COMPLETION_INDEX=1"}
	for _, kv := range regexp.MustCompile(`- name: (RMA_\w+)\s+value: "?([^"\s]+)"?`).FindAllStringSubmatch(string(text), -1) {
		vars = append(vars, kv[1]+"="+kv[2])
	}
	f, err := from(recorded(t, "", vars...))
	require.NoError(t, err)
	require.Equal(t, []int{1, n}, []int{f.Rank, f.Size})
	require.Equal(t, "hello-0."+one(`subdomain: (\S+)`)+":"+one(`^      port: (\d+)`), f.Root)
	require.Contains(t, string(text), "kind: Service\nmetadata:\n  name: "+one(`subdomain: (\S+)`)+"\n")
	require.Contains(t, string(text), "kind: Job\nmetadata:\n  name: hello\n")
}
