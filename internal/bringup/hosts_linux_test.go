package bringup

import (
	"log/slog"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/links"
	"github.com/seed33544411/rma/internal/testutil"
	"github.com/seed33544411/rma/internal/topo"
)

// A process with one processor gets a second P if the processor is its own, and only if the
// first one is the runtime's choice.
func TestSecondPOfOneProcessor(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	all := cpu.Allowed()
	require.NoError(t, topo.BindThread(cpu.Of(all.CPUs()[0]))) // processes that it starts inherit it
	defer func() { require.NoError(t, topo.BindThread(all)) }()
	for _, set := range []string{"", "1", "3"} {
		if !testutil.Alone(t, "GOMAXPROCS="+set) {
			continue
		}
		before := runtime.GOMAXPROCS(0)
		own, other := links.NewOffer(nil), links.Offer{Host: "elsewhere"}
		require.Equal(t, 1, own.CPUs.Len())
		unknown := own
		unknown.CPUs = cpu.Set{}
		after := func(hosts ...links.Offer) (int, string) {
			var log strings.Builder
			l := &Links{job: onRank{rank: 0}, hosts: hosts}
			l.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
			l.spareP()
			return runtime.GOMAXPROCS(0), log.String()
		}
		for name, hosts := range map[string][]links.Offer{"alone": {own}, "shared": {own, own}, "unknown": {unknown, other}} {
			n, log := after(hosts...)
			require.Equal(t, before, n, name)
			require.Empty(t, log, name)
		}
		n, log := after(own, other)
		if os.Getenv("GOMAXPROCS") != "" {
			require.Equal(t, before, n)
			require.Empty(t, log)
			return
		}
		require.Equal(t, 1, before)
		require.Equal(t, 2, n)
		require.Contains(t, log, `level=DEBUG msg="rma: GOMAXPROCS raised" from=1 to=2`)
		_, log = after(own, other)
		require.Empty(t, log, "once")
		return
	}
}
