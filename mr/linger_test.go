package mr

import (
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/testutil"
)

// busyLink is a link whose peer does not let go of memory.
type busyLink struct {
	fabric.Link
	busy *atomic.Bool
}

func (l busyLink) Register(mem []byte, a fabric.Access) (fabric.Region, error) {
	r, err := l.Link.Register(mem, a)
	return busyRegion{r, l.busy}, err
}

type busyRegion struct {
	fabric.Region
	busy *atomic.Bool
}

func (r busyRegion) Close() error {
	if r.busy.Load() {
		return fabric.ErrInUse
	}
	return r.Region.Close()
}

// Memory that a peer is still using when its registration is closed stays pinned, also
// when everybody here has forgotten it, and goes by itself when the peer lets go.
func TestMemoryInUseByAPeer(t *testing.T) {
	a, b := openers["sim"](t)
	defer b.Close()
	defer a.Close()
	busy := new(atomic.Bool)
	busy.Store(true)
	d, err := NewDomain(Rail{Link: busyLink{a, busy}})
	require.NoError(t, err)
	collected := make(chan struct{})
	func() {
		mem := make([]byte, 1<<16)
		runtime.AddCleanup(&mem[0], func(c chan struct{}) { close(c) }, collected)
		r, err := d.Register(mem, fabric.AccessRemoteWrite)
		require.NoError(t, err)
		require.ErrorIs(t, r.Close(), ErrInUse)
		require.ErrorIs(t, r.Close(), ErrInUse)
	}()
	require.ErrorIs(t, d.Close(), ErrInUse)
	require.Equal(t, 1, d.Live())
	for range 3 {
		runtime.GC()
	}
	select {
	case <-collected:
		t.Fatal("collected while a peer writes to it")
	default:
	}
	busy.Store(false)
	testutil.Eventually(t, testutil.Limit, func() bool { return d.Live() == 0 }, "the registration to go")
	testutil.Eventually(t, testutil.Limit, func() bool {
		runtime.GC()
		select {
		case <-collected:
			return true
		default:
			return false
		}
	}, "the memory to be collected")
	require.NoError(t, d.Close())
}
