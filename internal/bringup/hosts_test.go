package bringup

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/links"
)

func TestConfiguredSpinPolicy(t *testing.T) {
	for _, c := range []struct {
		cfg  Config
		want cpu.SpinPolicy
	}{
		{Config{}, cpu.Crowded},
		{Config{Spin: 100}, cpu.SpinPolicy{Polls: 64, Pauses: 36, Yields: cpu.Crowded.Yields}},
		{Config{Spin: -1, Yields: 7}, cpu.SpinPolicy{Yields: 7}},
		{Config{Yields: -1}, cpu.SpinPolicy{Polls: cpu.Crowded.Polls}},
	} {
		require.Equal(t, c.want, c.cfg.spin(cpu.Crowded))
	}
}

// onRank is a job that only returns its rank.
type onRank struct {
	Job
	rank int
}

func (j onRank) Rank() int { return j.rank }

// Hosts are numbered by their lowest ranks, and ranks within a host by rank.
func TestPlace(t *testing.T) {
	l := &Links{job: onRank{rank: 2}}
	for _, host := range []string{"b", "a", "b", "c", "a", "b"} {
		l.hosts = append(l.hosts, links.Offer{Host: host, CPUs: cpu.Set{}})
	}
	for rank, want := range []Place{
		{0, 0, 3, true, 0}, {1, 0, 2, false, 0}, {0, 1, 3, true, 0}, {2, 0, 1, false, 0}, {1, 1, 2, false, 0}, {0, 2, 3, true, 0},
	} {
		require.Equal(t, want, l.Place(rank), "rank %d", rank)
	}
}

// Ranks of a host share the processors that they are bound to, and no others.
func TestLoad(t *testing.T) {
	l := &Links{}
	for _, o := range []links.Offer{
		{Host: "bound", CPUs: cpu.Of(0)}, {Host: "bound", CPUs: cpu.Of(1)},
		{Host: "free", CPUs: cpu.Of(0, 1)}, {Host: "free", CPUs: cpu.Of(0, 1)}, {Host: "free", CPUs: cpu.Of(0, 1)},
		{Host: "one", CPUs: cpu.Of(0)}, {Host: "one", CPUs: cpu.Of(0)},
		{Host: "silent"},
	} {
		l.hosts = append(l.hosts, o)
	}
	for rank, want := range []struct {
		load float64
		cpus int
	}{{1, 1}, {1, 1}, {1.5, 2}, {1.5, 2}, {1.5, 2}, {2, 1}, {2, 1}, {0, 0}} {
		load, cpus := l.Load(rank)
		require.InDelta(t, want.load, load, 1e-9, "rank %d", rank)
		require.Equal(t, want.cpus, cpus, "rank %d", rank)
	}
}

// Of ranks with one P and a processor to themselves the lowest logs a warning, and no other
// rank does.
func TestWarningOfOneP(t *testing.T) {
	own := func(no int, oneP bool) links.Offer {
		return links.Offer{Host: "h", CPUs: cpu.Of(no), OneP: oneP}
	}
	for name, c := range map[string]struct {
		hosts []links.Offer
		want  int // the rank that warns; -1: none
		ranks int
	}{
		"all":                 {[]links.Offer{own(0, true), own(1, true), own(2, true)}, 0, 3},
		"not the first":       {[]links.Offer{own(0, false), own(1, true), own(2, true)}, 1, 2},
		"none":                {[]links.Offer{own(0, false), own(1, false)}, -1, 0},
		"a shared processor":  {[]links.Offer{own(0, true), own(0, true)}, -1, 0},
		"beside a shared one": {[]links.Offer{own(0, true), own(0, true), own(1, true)}, 2, 3},
		"alone":               {[]links.Offer{own(0, true)}, -1, 0},
	} {
		warned := -1
		for me := range c.hosts {
			var log strings.Builder
			l := &Links{job: onRank{rank: me}, hosts: c.hosts}
			l.Log = slog.New(slog.NewTextHandler(&log, nil))
			l.warnOneP()
			if log.Len() > 0 {
				require.Equal(t, -1, warned, "%s: once", name)
				require.Contains(t, log.String(), fmt.Sprintf(`level=WARN msg="rma: GOMAXPROCS is 1" ranks=%d fix="GOMAXPROCS=2 `, c.ranks), name)
				warned = me
			}
		}
		require.Equal(t, c.want, warned, name)
	}
}
