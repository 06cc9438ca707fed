//go:build unix

package main

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/testutil"
)

// What a test binary has started does not outlive its run.
func TestGroupEndsWithItsLeader(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cmd := exec.CommandContext(ctx, "sh", "-c", "trap '' QUIT; sh -c 'trap \"\" QUIT; echo $$; exec sleep 1000' & wait")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	sweep := leadGroup(cmd)
	cmd.WaitDelay = time.Millisecond // of the leader: the child ignores SIGQUIT, and is swept
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	pid := strings.TrimSpace(line)
	cancel()
	require.Error(t, cmd.Wait())
	sweep()
	require.Eventually(t, func() bool {
		stat, err := os.ReadFile("/proc/" + pid + "/stat")
		return err != nil || strings.Contains(string(stat), ") Z ") // a zombie waits for an init that reaps
	}, testutil.Limit, time.Millisecond)
}

func TestFollow(t *testing.T) {
	const events = `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"run","Package":"p","Test":"TestB"}
{"Action":"run","Package":"p","Test":"TestB/part"}
{"Action":"fail","Package":"p","Test":"TestB/part"}
{"Action":"fail","Package":"p","Test":"TestB"}
{"Action":"run","Package":"p","Test":"TestC"}
{"Action":"skip","Package":"p","Test":"TestC"}
{"Action":"run","Package":"p","Test":"Test"}
{"Action":"run","Package":"p","Test":"Test/One"}
{"Action":"pass","Package":"p","Test":"Test/One"}
{"Action":"run","Package":"p","Test":"Test/Two"}
{"Action":"run","Package":"q","Test":"TestA"}
{"Action":"fail","Package":"q","Test":"TestA"}
`
	tests := map[string]bool{}
	cut := follow(strings.NewReader(events), io.Discard, tests)
	require.Equal(t, []string{"p Test/Two"}, cut)
	require.Equal(t, map[string]bool{"p TestA": true, "q TestA": false, "p TestB": false, "p Test/One": true, "p Test/Two": false}, tests)

	r := &result{tests: tests}
	require.Equal(t, []string{"p Test/Two", "p TestB", "p TestD", "q TestA"}, r.failed(&result{tests: map[string]bool{"p TestD": true, "p TestA": true}}))
	r.count()
	require.Equal(t, []int{2, 4}, []int{r.Passed, r.Failed}, "a test that ran over sockets only has failed")
	require.Equal(t, `^Test$/^One$|^TestA$`, patterns([]string{"p Test/One", "q TestA"}))
}
