package cpu

import (
	"context"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A collector that waits for a goroutine which yields between turns does not wait for ever, even
// if all threads share one processor: it looks at that goroutine only while that yields.
func TestYieldLetsTheCollectorIn(t *testing.T) {
	if os.Getenv("RMA_TEST_YIELDS") != "" {
		yieldBesideCollections(t)
		return
	}
	self, err := os.Executable()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // deadline: without the check in Yield it never ends
	defer cancel()
	cmd := exec.CommandContext(ctx, self, "-test.run=^TestYieldLetsTheCollectorIn$", "-test.v")
	cmd.Env = append(os.Environ(), "RMA_TEST_YIELDS=1", "GOMAXPROCS=2")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

func yieldBesideCollections(t *testing.T) {
	one := unix.CPUSet{}
	one.Set(Allowed().CPUs()[0])
	threads, err := os.ReadDir("/proc/self/task")
	require.NoError(t, err)
	for _, e := range threads {
		id, err := strconv.Atoi(e.Name())
		require.NoError(t, err)
		require.NoError(t, unix.SchedSetaffinity(id, &one)) // later threads inherit it
	}
	var over atomic.Bool
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for !over.Load() {
			Yield()
			runtime.Gosched()
		}
	}()
	for range 100 {
		runtime.GC()
	}
	over.Store(true)
	<-ended
}
