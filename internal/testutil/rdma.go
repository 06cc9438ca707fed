package testutil

import (
	"os"
	"testing"

	"github.com/Mellanox/rdmamap"
)

// MustHaveRDMA reports whether a missing device is a failure: RMA_REQUIRE_RDMA=1.
func MustHaveRDMA() bool { return os.Getenv("RMA_REQUIRE_RDMA") == "1" }

// RequireRDMA returns the names of this machine's RDMA devices. Without one
// the test is skipped, or fails if RMA_REQUIRE_RDMA=1.
func RequireRDMA(tb testing.TB) []string {
	tb.Helper()
	devs := rdmamap.GetRdmaDeviceList()
	if len(devs) == 0 {
		NoRDMA(tb, "no RDMA device (nothing in %s): make softroce runs this test in a kernel that has one", rdmamap.RdmaClassDir)
	}
	return devs
}

// RDMAPair returns the devices of the two ends of a test: RMA_RDMA_DEVICE and
// RMA_RDMA_DEVICE2, by default the first device for both. Without a device it behaves like
// RequireRDMA.
func RDMAPair(tb testing.TB) (a, b string) {
	tb.Helper()
	a = RequireRDMA(tb)[0]
	if v := os.Getenv("RMA_RDMA_DEVICE"); v != "" {
		a = v
	}
	if b = os.Getenv("RMA_RDMA_DEVICE2"); b == "" {
		b = a
	}
	return a, b
}

// NoRDMA ends a test that needs a feature missing in this machine's RDMA stack: it skips
// with the reason, or fails if RMA_REQUIRE_RDMA=1.
func NoRDMA(tb testing.TB, format string, args ...any) {
	tb.Helper()
	if MustHaveRDMA() {
		tb.Fatalf("RMA_REQUIRE_RDMA=1, but "+format, args...)
	}
	tb.Skipf(format, args...)
}

// Links are the names of the links that tests run on.
var Links = []string{"shm", "tcp", "ibv"}

// EachLink runs f as a parallel subtest for every link; for ibv only where there is a device.
func EachLink(t *testing.T, f func(t *testing.T, link string)) {
	EachLinkAlone(t, func(t *testing.T, link string) {
		if link != "ibv" { // one test at a time uses the device
			t.Parallel()
		}
		f(t, link)
	})
}

// EachLinkAlone is EachLink for tests that must not run in parallel with others.
func EachLinkAlone(t *testing.T, f func(t *testing.T, link string)) {
	for _, link := range Links {
		t.Run(link, func(t *testing.T) {
			if link == "ibv" {
				RequireRDMA(t)
			}
			f(t, link)
		})
	}
}
