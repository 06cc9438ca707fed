//go:build linux

package main

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestParseRun(t *testing.T) {
	t.Parallel()
	o, err := parseRun(strings.Fields("-vm qemu -topology two -timeout 30s -smp 4 -env A=1 -env B=x=y -out o -- ./my.test -test.v -vm"), io.Discard)
	require.NoError(t, err)
	require.Equal(t, Options{
		VM: "qemu", Topology: "two", Timeout: 30 * time.Second, SMP: 4, Accel: "tcg",
		Env: []string{"A=1", "B=x=y"}, Out: "o", Argv: []string{"./my.test", "-test.v", "-vm"},
	}, o)
}

func TestParseRunRefuses(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"":                                    "no program",
		"-vm xen -- true":                     `-vm "xen"`,
		"-topology ring -- true":              `-topology "ring"`,
		"-vm native -topology guests -- true": "use -vm qemu or uml",
		"-netem loss -- true":                 "-netem needs a wire",
		"-accel hax -- true":                  "-accel",
		"-smp -1 -- true":                     "-smp",
		"-vm uml -smp 2 -- true":              "one CPU",
		"-vm uml -numa 2 -- true":             "-numa 2: want -vm qemu",
		"-numa 2 -- true":                     "-numa 2: want -vm qemu",
		"-vm qemu -numa 3 -- true":            "a CPU for each node",
		"-vm qemu -numa -1 -- true":           "-numa -1",
		"-timeout 0s -- true":                 "-timeout",
		"-timeout soon -- true":               "invalid value",
		"-env =1 -- true":                     "-env",
		"-env novalue -- true":                "-env",
		"-nosuch -- true":                     "not defined",
	} {
		_, err := parseRun(strings.Fields(args), io.Discard)
		require.ErrorIs(t, err, errUsage, args)
		require.ErrorContains(t, err, want, args)
	}
}

func TestParseSuite(t *testing.T) {
	t.Parallel()
	o, err := parseSuite([]string{"-vm", "native", "-netem", "loss 3%", "-topologies", "two,guests", "verbs", "./eager/"}, io.Discard)
	require.NoError(t, err)
	require.Equal(t, "loss 3%", o.Netem)
	require.Equal(t, []string{"verbs", "./eager/"}, o.Pkgs)
	_, err = parseSuite([]string{"-topologies", "one,three"}, io.Discard)
	require.ErrorIs(t, err, errUsage)
}

func TestPassEnv(t *testing.T) {
	t.Parallel()
	got := passEnv([]string{"RMA_TEST_X=1", "RMA_SOFTROCE_CACHE=/c", "HOME=/h", "GOMAXPROCS=2", "PATH=/p", "GODEBUG=a=b"}, []string{"K=V"})
	require.Equal(t, []string{"RMA_TEST_X=1", "GOMAXPROCS=2", "GODEBUG=a=b", "K=V"}, got)
}
