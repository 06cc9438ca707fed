//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLayouts(t *testing.T) {
	t.Parallel()
	one, err := layoutOf("one", 0)
	require.NoError(t, err)
	require.Equal(t, []endpoint{{"rxe0", "sr0", "10.9.0.1"}}, one.ends)
	require.Empty(t, one.rules())
	require.Empty(t, one.peer)

	two, err := layoutOf("two", 0)
	require.NoError(t, err)
	require.Equal(t, 32, two.bits, "a shared subnet would route past the pair")
	require.Equal(t, []policyRule{
		{pref: 10, table: tableLocal, iif: "sr0"},
		{pref: 11, table: tableLocal, iif: "sr1"},
		{pref: 20, table: tableTo, src: "10.9.0.2", dst: "10.9.0.1"},
		{pref: 21, table: tableTo + 1, src: "10.9.0.1", dst: "10.9.0.2"},
		{pref: 100, table: tableLocal},
	}, two.rules())
	require.Contains(t, two.sysctls(), [2]string{"net/ipv4/conf/sr1/accept_local", "1"})
	require.Contains(t, two.sysctls(), [2]string{"net/ipv4/conf/all/rp_filter", "0"})

	rails, err := layoutOf("rails", 0)
	require.NoError(t, err)
	require.Equal(t, 2, rails.pairs())
	require.Equal(t, endpoint{"rxe3", "sr3", "10.9.1.2"}, rails.ends[3])
	require.Contains(t, rails.rules(), policyRule{pref: 23, table: tableTo + 3, dst: "10.9.1.2"})

	a, _ := layoutOf("guests", 0)
	b, _ := layoutOf("guests", 1)
	require.Equal(t, a.ends[0].addr, b.peer)
	require.Equal(t, b.ends[0].addr, a.peer)
	require.NotEqual(t, a.peer, b.peer)

	_, err = layoutOf("ring", 0)
	require.Error(t, err)
}

func TestTopologyEnv(t *testing.T) {
	t.Parallel()
	l, _ := layoutOf("two", 0)
	require.Equal(t, []string{
		"RMA_SOFTROCE=qemu", "RMA_SOFTROCE_TOPOLOGY=two", "RMA_SOFTROCE_DEVICES=rxe0,rxe1",
		"RMA_SOFTROCE_ADDRS=10.9.0.1,10.9.0.2", "RMA_RDMA_DEVICE=rxe0", "RMA_RDMA_DEVICE2=rxe1", "RMA_SOFTROCE_OUT=/o",
	}, (&topology{layout: l}).env(Plan{Kind: "qemu", Out: "/o"}))
	l, _ = layoutOf("guests", 1)
	env := (&topology{layout: l}).env(Plan{Kind: "uml", Node: 1})
	require.Subset(t, env, []string{"NODE=1", "ME=10.9.0.2", "PEER=10.9.0.1", "RMA_SOFTROCE_DEVICES=rxe0"})
}

func TestMappedGID(t *testing.T) {
	t.Parallel()
	require.Equal(t, "0000:0000:0000:0000:0000:ffff:0a09:0002", mappedGID("10.9.0.2"))
}

func TestAddClock(t *testing.T) {
	t.Parallel()
	require.Equal(t, "processor\t: 0\ncpu MHz\t\t: 2600.0\nvendor_id\t: User Mode Linux\n",
		addClock("processor\t: 0\nvendor_id\t: User Mode Linux\n", "2600.0"))
}

// steps runs programs on this host through the guest's step runner.
func steps(t *testing.T, list ...Step) (results []StepResult, stdout, stderr string) {
	t.Helper()
	dir := t.TempDir()
	of, ef, err := openOutputs(dir)
	require.NoError(t, err)
	defer of.Close()
	defer ef.Close()
	l, _ := layoutOf("one", 0)
	plan := Plan{Kind: "native", Topology: "one", Dir: dir, Env: []string{"FROM=plan"}, Steps: list}
	results, err = runSteps(t.Context(), plan, &topology{layout: l}, of, ef, nil)
	require.NoError(t, err)
	so, _ := os.ReadFile(filepath.Join(dir, stdoutFile))
	se, _ := os.ReadFile(filepath.Join(dir, stderrFile))
	return results, string(so), string(se)
}

func TestStepCodes(t *testing.T) {
	t.Parallel()
	sh := func(script string) Step { return Step{Argv: []string{"sh", "-c", script}} }
	slow := sh("sleep 60 & wait")
	slow.Timeout = 100 * time.Millisecond
	res, out, errs := steps(t,
		sh("echo out; echo err >&2; exit 0"), sh("exit 7"), sh("kill -SEGV $$"), slow,
		Step{Argv: []string{"no-such-program"}}, Step{Argv: []string{"./none"}})
	var codes []int
	for _, r := range res {
		codes = append(codes, r.Code)
	}
	require.Equal(t, []int{0, 7, 128 + 11, timedOutCode, 127, 127}, codes)
	require.Equal(t, "out\n", out)
	require.Contains(t, errs, "err\n")
	require.Contains(t, errs, "no end after 100ms")
	require.Contains(t, errs, "no-such-program: not found")
}

func TestStepEnvAndDir(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, out, _ := steps(t, Step{Name: "show", Dir: dir, Env: []string{"OWN=step"},
		Argv: []string{"sh", "-c", "pwd; echo $FROM $OWN $RMA_SOFTROCE_DEVICES ${USER-none}"}})
	lines := strings.Split(out, "\n")
	require.Equal(t, "--- show", lines[0])
	require.Equal(t, dir, lines[1])
	require.Equal(t, "plan step rxe0 none", lines[2])
	require.Contains(t, lines[3], "--- show: ok")
}

func TestStepEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	dir := t.TempDir()
	of, ef, err := openOutputs(dir)
	require.NoError(t, err)
	defer of.Close()
	defer ef.Close()
	stop := errors.New("stop")
	time.AfterFunc(50*time.Millisecond, func() { cancel(stop) })
	l, _ := layoutOf("one", 0)
	_, err = runSteps(ctx, Plan{Dir: dir, Steps: []Step{{Argv: []string{"sleep", "60"}}}}, &topology{layout: l}, of, ef, nil)
	require.ErrorIs(t, err, stop)
}

func TestResultCode(t *testing.T) {
	t.Parallel()
	ok, bad := StepResult{Code: 0}, StepResult{Code: 3}
	require.Equal(t, 0, Result{Steps: []StepResult{ok, ok}}.Code())
	require.Equal(t, 3, Result{Steps: []StepResult{ok, bad, ok}}.Code())
	require.Equal(t, harnessFailure, Result{}.Code())
	require.Equal(t, harnessFailure, Result{Error: "x", Steps: []StepResult{ok}}.Code())
	require.Equal(t, 3, combine([]Result{{}, {Steps: []StepResult{bad}}}), "the one that was cut short does not count")
	require.Equal(t, 0, combine([]Result{{Steps: []StepResult{ok}}, {Steps: []StepResult{ok}}}))
	require.Equal(t, harnessFailure, combine([]Result{{}, {}}))
}

func TestWriteJSONAppearsWhole(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), resultFile)
	var r Result
	ok, err := readJSON(path, &r)
	require.NoError(t, err)
	require.False(t, ok)
	want := Result{Steps: []StepResult{{Name: "a", Code: 1, Seconds: 2}}, Ready: 3}
	require.NoError(t, writeJSON(path, want))
	ok, err = readJSON(path, &r)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, want, r)
	left, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, left, 1)
}

func TestFollowerAndPrefixer(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "f")
	var mu sync.Mutex
	var got bytes.Buffer
	p := &prefixer{w: &got, mu: &mu, prefix: "1| "}
	f := &follower{path: path, w: p}
	defer f.close()
	require.NoError(t, f.drain(), "not there yet")
	w, err := os.Create(path)
	require.NoError(t, err)
	defer w.Close()
	for _, part := range []string{"one\ntw", "o\n", "\nlast"} {
		w.WriteString(part)
		require.NoError(t, f.drain())
	}
	require.Equal(t, "1| one\n1| two\n1| \n", got.String())
	p.flush()
	require.Equal(t, "1| one\n1| two\n1| \n1| last\n", got.String())
}

func TestSuiteSteps(t *testing.T) {
	t.Parallel()
	list := []target{{pkg: "a/b", topologies: []string{"one", "two"}}, {pkg: "c", topologies: []string{"two"}, slow: "3", omit: []omission{
		{tests: "!Ping", why: "a"}, {tests: "Pong", netem: "loss", why: "b"}, {tests: "Peng", netem: "delay", why: "c"}}}}
	o := suiteOptions{Options: Options{Netem: "loss 1%; delay 1ms"}}
	require.Len(t, suiteSteps("/m", "/b", "one", list, o), 1, "nothing to disturb inside one device")
	two := suiteSteps("/m", "/b", "two", list, o)
	require.Len(t, two, 6)
	require.Equal(t, "/b/b.test", two[0].Argv[0])
	require.Equal(t, "/m/a/b", two[0].Dir)
	require.Equal(t, []string{"RMA_REQUIRE_RDMA=1"}, two[0].Env)
	require.Empty(t, two[1].Netem)
	require.Equal(t, "loss 1%", two[3].Netem)
	require.Contains(t, two[3].Argv, "-test.run=Ping")
	require.Contains(t, two[3].Argv, "-test.skip=Pong")
	require.Equal(t, []string{"left out: all but Ping: a", "left out: Pong: b"}, two[3].Notes)
	require.Equal(t, []string{"RMA_REQUIRE_RDMA=1", "RMA_TEST_SLOW=3"}, two[3].Env)
	require.Empty(t, two[1].Notes)
	require.Equal(t, "delay 1ms", two[5].Netem)
	require.Contains(t, two[5].Argv, "-test.skip=Peng")
	require.Empty(t, suiteSteps("/m", "/b", "guests", list, o))
	list[1].host = []string{"TestA", "TestB"}
	two = suiteSteps("/m", "/b", "two", list, o)
	require.Contains(t, two[1].Argv, "-test.skip=^(TestA|TestB)$")
	require.Contains(t, two[3].Argv, "-test.skip=^(TestA|TestB)$|Pong")
	require.Len(t, two[1].Notes, 1)
	list[1].alone = true
	require.Len(t, suiteSteps("/m", "/b", "two", list, o), 4, "the wire of the second is not disturbed")
	list[0].strict = true
	require.Equal(t, []string{"sh", "-c", strictly, "sh", "/b/b.test"}, suiteSteps("/m", "/b", "one", list, o)[0].Argv[:5])
	require.Equal(t, "/b/b.test", suiteSteps("/m", "/b", "two", list, o)[0].Argv[0])
	o.Race = true
	require.Equal(t, "/b/b.test", suiteSteps("/m", "/b", "one", list, o)[0].Argv[0])
}

func TestChooseTargetsNeedsThemToExist(t *testing.T) {
	t.Parallel()
	_, err := chooseTargets(t.TempDir(), nil)
	require.ErrorContains(t, err, "no tests in")
	got, err := chooseTargets("../..", []string{"./tests/softroce/smoke/", "some/pkg"})
	require.NoError(t, err)
	require.Len(t, got, 2)
	require.Equal(t, "tests/softroce/smoke", got[0].pkg)
	require.Equal(t, "some/pkg", got[1].pkg)
}

func TestTargetsAreListedOnce(t *testing.T) {
	t.Parallel()
	type way struct {
		pkg    string
		strict bool
	}
	ways, names := map[way]bool{}, map[string]string{}
	for _, g := range targets {
		require.False(t, ways[way{g.pkg, g.strict}], "%s twice", g.pkg)
		require.Contains(t, []string{"", g.pkg}, names[g.binaryName()], g.binaryName())
		ways[way{g.pkg, g.strict}], names[g.binaryName()] = true, g.pkg
		require.Equal(t, g.pkg, cleanPkg("./"+g.pkg+"/"))
	}
}

// The tests that are left to the host exist.
func TestTestsOfTheHostExist(t *testing.T) {
	t.Parallel()
	for _, g := range targets {
		var src []byte
		files, err := filepath.Glob(filepath.Join("../..", g.pkg, "*_test.go"))
		require.NoError(t, err)
		for _, f := range files {
			b, err := os.ReadFile(f)
			require.NoError(t, err)
			src = append(src, b...)
		}
		for _, name := range g.host {
			require.Contains(t, string(src), "\nfunc "+name+"(t *testing.T) {\n", g.pkg)
		}
	}
}

// tests/packages reads the same list and finds the same packages missing.
func TestPackagesScript(t *testing.T) {
	t.Parallel()
	for _, sets := range [][]string{{"common", "qemu"}, {"uml"}, {"perf"}, {"launchers"}, {"abi", "verbs", "native"}} {
		out, err := exec.Command("../packages", append([]string{"missing"}, sets...)...).CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.ElementsMatch(t, missing(sets...), strings.Fields(string(out)), sets)
	}
	// Without permission to install, or without the request, it names the remedy.
	cmd := exec.Command("../packages", "install", "make x", "uml", "perf", "launchers")
	cmd.Env = append(os.Environ(), "INSTALL=no")
	out, err := cmd.CombinedOutput()
	if len(missing("uml", "perf", "launchers")) == 0 {
		require.NoError(t, err)
		require.Empty(t, out)
		return
	}
	require.Error(t, err)
	require.Equal(t, 3, cmd.ProcessState.ExitCode())
	require.Regexp(t, `^make x: packages are missing`, string(out))
}

func TestAptLine(t *testing.T) {
	t.Parallel()
	require.Contains(t, aptLine([]string{"a", "b"}), "apt-get install -y --no-install-recommends a b")
	require.False(t, need{"no-such-program-at-all", "p"}.present())
	require.True(t, need{"sh", "dash"}.present())
	for _, set := range []string{"common", "qemu", "uml", "perf"} {
		require.NotEmpty(t, needs[set], set)
	}
	require.Contains(t, needs["qemu"], need{"qemu-system-x86_64", "qemu-system-x86"})
}
