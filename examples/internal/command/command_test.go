package command

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/testutil"
)

// The test binary is a program with this variable.
const programEnv = "RMA_TEST_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(programEnv) != "" {
		Main(func(context.Context) error { fmt.Println("runs"); return nil })
		os.Exit(0)
	}
	testutil.Main(m)
}

// A value without its flag, such as the A of -class A, does not run the program with the default.
func TestMainTakesFlagsOnly(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	require.NoError(t, err)
	for arg, code := range map[string]int{"-test.v": 0, "A": 2} {
		cmd := exec.CommandContext(testutil.Context(t, testutil.Limit), self, arg)
		cmd.Env = append(os.Environ(), programEnv+"=1")
		out, _ := cmd.CombinedOutput() // the code says it
		require.Equal(t, code, cmd.ProcessState.ExitCode(), "%s", out)
		if code == 0 {
			require.Equal(t, "runs\n", string(out))
		} else {
			require.Contains(t, string(out), "unexpected argument \"A\"\nUsage of ")
		}
	}
}
