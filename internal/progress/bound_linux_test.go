package progress

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/sim"
	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/testutil"
)

// The progress goroutine runs on the processor that it was given, as long as it lives, and
// works there as it does elsewhere.
func TestStartOn(t *testing.T) {
	a, _ := pair(t, sim.Options{Caps: sim.CapsLike("tcp")})
	cpus := cpu.Allowed().CPUs()
	last := cpu.Of(cpus[len(cpus)-1])
	e := takeOver(t, a)
	require.NoError(t, StartOn(e, last))
	on := make(chan cpu.Set, 1)
	e.Outside(func() { on <- cpu.Thread() })
	require.Equal(t, last.String(), (<-on).String())
	testutil.Eventually(t, testutil.Limit, func() bool { return e.rest.Load() == asleep }, "progress goroutine asleep")
	require.NoError(t, a.write(testutil.Context(t, testutil.Limit), &op{off: 8}))
	a.leave(t)
	require.NoError(t, e.Close())
}

func TestStartOnAProcessorThatIsNotThere(t *testing.T) {
	a, _ := pair(t, sim.Options{})
	e, err := New([]fabric.Link{a.link}, a, cpu.Default(), cpu.NoHome, 1)
	require.NoError(t, err)
	require.ErrorIs(t, StartOn(e, cpu.Of(cpu.MaxCPU-1)), syscall.EINVAL)
	closed := make(chan error, 1)
	go func() { closed <- e.Close() }()
	select {
	case err := <-closed:
		require.NoError(t, err)
	case <-time.After(testutil.Limit):
		t.Fatal("Close waits for a goroutine that was not started")
	}
}
