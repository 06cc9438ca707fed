package bringup

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/links"
	"github.com/seed33544411/rma/internal/topo"
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

// Hosts are numbered by their lowest ranks, and ranks within a host by rank. Those of a host have the
// processors that they are bound to, if all have stated them.
func TestPlace(t *testing.T) {
	l := &Links{job: onRank{rank: 2}}
	for i, host := range []string{"b", "a", "b", "c", "a", "b"} {
		l.hosts = append(l.hosts, links.Offer{Host: host, CPUs: []cpu.Set{{}, cpu.Of(0), cpu.Of(1), cpu.Of(3, 4), cpu.Of(0, 2), cpu.Of(3)}[i]})
	}
	for rank, want := range []Place{
		{Host: 0, LocalRank: 0, LocalSize: 3, Here: true}, {Host: 1, LocalRank: 0, LocalSize: 2, Processors: 2},
		{Host: 0, LocalRank: 1, LocalSize: 3, Here: true}, {Host: 2, LocalRank: 0, LocalSize: 1, Processors: 2},
		{Host: 1, LocalRank: 1, LocalSize: 2, Processors: 2}, {Host: 0, LocalRank: 2, LocalSize: 3, Here: true},
	} {
		if want.Here {
			want.Near = topo.Local(l.hosts[rank].CPUs).Between(l.hosts[2].CPUs, l.hosts[rank].CPUs)
		}
		require.Equal(t, want, l.Place(rank), "rank %d", rank)
	}
}

// Ranks of a host share the processors that they are bound to, and no others.
func TestLoad(t *testing.T) {
	l := &Links{hosts: []links.Offer{
		{Host: "bound", CPUs: cpu.Of(0)}, {Host: "bound", CPUs: cpu.Of(1)},
		{Host: "free", CPUs: cpu.Of(0, 1)}, {Host: "free", CPUs: cpu.Of(0, 1)}, {Host: "free", CPUs: cpu.Of(0, 1)},
		{Host: "one", CPUs: cpu.Of(0)}, {Host: "one", CPUs: cpu.Of(0)},
		{Host: "silent"},
	}}
	for rank, want := range []struct {
		load float64
		cpus int
	}{{1, 1}, {1, 1}, {1.5, 2}, {1.5, 2}, {1.5, 2}, {2, 1}, {2, 1}, {0, 0}} {
		load, cpus := l.Load(rank)
		require.InDelta(t, want.load, load, 1e-9, "rank %d", rank)
		require.Equal(t, want.cpus, cpus, "rank %d", rank)
	}
}
