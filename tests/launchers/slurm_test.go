//go:build linux

package launchers

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"text/template"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/testutil"
)

// slurmConf is a cluster of two nodes, both on this host, without anything that
// takes privileges: daemons and jobs run as the user who runs the test.
var slurmConf = template.Must(template.New("slurm.conf").Parse(`ClusterName=rma
SlurmctldHost={{.Host}}(127.0.0.1)
SlurmctldPort={{index .Ports 0}}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={{.Dir}}/munge.s
SlurmUser={{.User}}
SlurmdUser={{.User}}
StateSaveLocation={{.Dir}}/state
SlurmdSpoolDir={{.Dir}}/spool-%n
SlurmctldPidFile={{.Dir}}/ctld.pid
SlurmdPidFile={{.Dir}}/d-%n.pid
SlurmctldLogFile={{.Dir}}/ctld.log
SlurmdLogFile={{.Dir}}/d-%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/affinity
TaskPluginParam=None
SwitchType=switch/none
MpiDefault=none
SchedulerType=sched/builtin
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
NodeName=n1 NodeHostname={{.Host}} NodeAddr=127.0.0.1 Port={{index .Ports 1}} CPUs=4
NodeName=n2 NodeHostname={{.Host}} NodeAddr=127.0.0.1 Port={{index .Ports 2}} CPUs=4
PartitionName=p Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:8
`))

// slurmCgroup keeps slurmd away from the host's control groups: it searches a
// directory without any, and requires none.
const slurmCgroup = "CgroupPlugin=cgroup/v1\nCgroupMountpoint=%s/cgroup\nCgroupAutomount=no\n"

// cluster starts munged, slurmctld and two slurmd, and returns the environment
// that their clients need. They end with the test.
func cluster(t *testing.T) []string {
	dir := shortDir(t)
	me, err := user.Current()
	require.NoError(t, err)
	host, err := os.Hostname()
	require.NoError(t, err)
	host, _, _ = strings.Cut(host, ".")
	for _, d := range []string{"state", "spool-n1", "spool-n2", "cgroup"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, d), 0o700))
	}
	var ports []int
	var held []net.Listener // together, so that they differ
	for range 3 {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		held = append(held, ln)
		ports = append(ports, ln.Addr().(*net.TCPAddr).Port)
	}
	for _, ln := range held {
		require.NoError(t, ln.Close())
	}
	var conf strings.Builder
	require.NoError(t, slurmConf.Execute(&conf, map[string]any{"Host": host, "Dir": dir, "User": me.Username, "Ports": ports}))
	key := make([]byte, 1024)
	rand.Read(key)
	for name, text := range map[string]string{"slurm.conf": conf.String(), "cgroup.conf": strings.ReplaceAll(slurmCgroup, "%s", dir), "munge.key": string(key)} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	env := []string{"SLURM_CONF=" + filepath.Join(dir, "slurm.conf")}
	t.Cleanup(func() { endSteps(t, env[0]) }) // after the daemons, which start them
	var daemons []<-chan struct{}
	for _, d := range [][]string{
		{"munged", "--foreground", "--key-file=" + dir + "/munge.key", "--socket=" + dir + "/munge.s", "--pid-file=" + dir + "/munge.pid",
			"--seed-file=" + dir + "/munge.seed", "--num-threads=1"},
		{"slurmctld", "-D", "-c"}, {"slurmd", "-D", "-N", "n1"}, {"slurmd", "-D", "-N", "n2"},
	} {
		daemons = append(daemons, daemon(t, fmt.Sprintf("%s/%d.out", dir, len(daemons)), env, d))
		if d[0] == "munged" {
			testutil.Eventually(t, 20*time.Second, func() bool { _, err := os.Stat(dir + "/munge.s"); return err == nil }, "munged")
		}
	}
	testutil.Eventually(t, 30*time.Second, func() bool {
		for _, ended := range daemons {
			select {
			case <-ended:
				require.Fail(t, "a daemon ended")
			default:
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), testutil.Limit)
		defer cancel()
		cmd := exec.CommandContext(ctx, "sinfo", "-h", "-N", "-o", "%T")
		cmd.Env = append(os.Environ(), env...)
		out, err := cmd.Output()
		time.Sleep(50 * time.Millisecond) // sleep: asking takes the time of those who are to start
		return err == nil && strings.Count(string(out), "idle") == 2
	}, "two idle nodes")
	return env
}

// endSteps ends what slurmd has started and left to itself: steps that
// outlive it. They have the cluster's configuration in their environment.
func endSteps(t *testing.T, conf string) {
	ids, err := filepath.Glob("/proc/[0-9]*")
	require.NoError(t, err)
	for _, p := range ids {
		text, err := os.ReadFile(p + "/environ")
		pid, _ := strconv.Atoi(filepath.Base(p))
		if err == nil && pid != os.Getpid() && slices.Contains(strings.Split(string(text), "\x00"), conf) {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended by now
		}
	}
}

// daemon starts a server in the foreground, and stops it when the test ends. If
// the test has failed its log is shown.
func daemon(t *testing.T, log string, env []string, argv []string) (over <-chan struct{}) {
	path, err := exec.LookPath(argv[0])
	if err != nil {
		path = "/usr/sbin/" + argv[0]
	}
	out, err := os.Create(log)
	require.NoError(t, err)
	cmd := exec.Command(path, argv[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = out, out
	// Not in a group of its own: an interrupt at the terminal is for it, too.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(t, cmd.Start())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // by a signal, as a rule
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(5 * time.Second): // deadline: killed then
			_ = cmd.Process.Kill()
			<-ended
		}
		out.Close()
		if t.Failed() {
			text, _ := os.ReadFile(log)
			t.Logf("%v:\n%s", argv, text)
		}
	})
	return ended
}
