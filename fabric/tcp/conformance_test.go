//go:build linux

package tcp

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/fabrictest"
	"github.com/seed33544411/rma/internal/testutil"
)

func openTwo(cfg Config, direct int) func(tb testing.TB) (fabric.Link, fabric.Link) {
	return func(tb testing.TB) (fabric.Link, fabric.Link) {
		a, err := Open(&cfg)
		require.NoError(tb, err)
		b, err := Open(&cfg)
		require.NoError(tb, err)
		a.(*link).direct, b.(*link).direct = direct, direct
		return a, b
	}
}

// The suite runs with the kernel's buffers; with a small send buffer, so that
// every frame is sent and received in parts, and epoll for the few endpoints
// that would be read directly; and with all payload on lanes, in parts; then
// protected in both ways. The combinations of these have little code of their own, the
// records that arrive in parts, which the first repetitions of each case pass through.
func TestConformance(t *testing.T) {
	for name, c := range map[string]struct {
		cfg    Config
		direct int
		fewer  int // Factory.Slow
	}{
		"plain": {Config{}, directMax, 1},
		"epoll": {Config{SendBuffer: 64 << 10, Lanes: -1}, -1, 1},
		"lanes": {Config{SendBuffer: 64 << 10, Lanes: 3, LaneMin: 1}, directMax, 1},

		// Without a loss, only the handshake and the account of what is confirmed are its own; the
		// losses are in TestConformanceAcrossLosses.
		"resumes": {Config{Resume: true, Paths: []netip.Addr{netip.MustParseAddr("127.0.0.2")}}, directMax, 4},

		"authenticated":       {Config{Crypt: CryptAuth}, directMax, 1},
		"encrypted":           {Config{Crypt: CryptFull}, directMax, 1},
		"authenticated epoll": {Config{Crypt: CryptAuth, SendBuffer: 64 << 10, Lanes: -1}, -1, 4},
		"encrypted lanes":     {Config{Crypt: CryptFull, SendBuffer: 64 << 10, Lanes: 3, LaneMin: 1}, -1, 4},
	} {
		if testutil.Race && c.fewer > 1 {
			continue // the goroutines are those of the variants that are combined
		}
		t.Run(name, func(t *testing.T) {
			f := fabrictest.Factory{Open: openTwo(c.cfg, c.direct), IdleDown: true, Slow: c.fewer, Deadline: testutil.Limit}
			if c.cfg.Lanes > 0 && c.cfg.Crypt != CryptFull { // a header and its payload are several pieces
				f.NoAllocs = piecesAllocate
			}
			fabrictest.Run(t, f)
		})
	}
}
