package progress

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/testutil"
)

// procs sets GOMAXPROCS for the test, which must not be parallel.
func procs(t *testing.T, n int) {
	t.Helper()
	before := runtime.GOMAXPROCS(n)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
}

func TestSpareP(t *testing.T) {
	taken := func() bool { return runtime.GOMAXPROCS(0) == 1 }
	procs(t, 1)
	end, other := SpareP(), SpareP()
	require.Equal(t, 2, runtime.GOMAXPROCS(0))
	end()
	again := SpareP()
	other()
	takeSpareP() // somebody needs it
	require.Equal(t, 2, runtime.GOMAXPROCS(0))
	again()
	testutil.Eventually(t, testutil.Limit, taken, "the P to be taken")
	end = SpareP()
	require.Equal(t, 2, runtime.GOMAXPROCS(0))
	end()
	testutil.Eventually(t, testutil.Limit, taken, "the P to be taken again")
}

func TestSparePLeavesOthersAlone(t *testing.T) {
	procs(t, 3)
	end := SpareP()
	require.Equal(t, 3, runtime.GOMAXPROCS(0), "there is another P")
	end()
	takeSpareP()
	require.Equal(t, 3, runtime.GOMAXPROCS(0))

	runtime.GOMAXPROCS(1)
	end = SpareP()
	runtime.GOMAXPROCS(4) // the application decides
	end()
	takeSpareP()
	require.Equal(t, 4, runtime.GOMAXPROCS(0))
}
