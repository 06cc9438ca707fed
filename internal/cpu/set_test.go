package cpu

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func set(t *testing.T, list string) Set {
	t.Helper()
	s, err := ParseSet(list)
	require.NoError(t, err)
	require.Equal(t, list, s.String())
	return s
}

func TestSet(t *testing.T) {
	for list, n := range map[string]int{"": 0, "0": 1, "0-1": 2, "3,5-7": 4, "0-63": 64, "62-65,8191": 5} {
		require.Equal(t, n, set(t, list).Len(), list)
	}
	for _, bad := range []string{",", "1,", "-", "2-1", "8192", "0-8192", "x", "1-x", "99999999999999999999"} {
		_, err := ParseSet(bad)
		require.ErrorIs(t, err, ErrSet, bad)
	}
	require.Equal(t, 2, set(t, "0-3,70").Common(set(t, "2-3,9")))
	require.Equal(t, "0-3,9,70", Union([]Set{set(t, "0-2"), nil, set(t, "3,9,70")}).String())
	var s Set
	s.Add(-1)
	s.Add(maxCPU)
	require.Empty(t, s)
}

func TestAllowedIsNotEmpty(t *testing.T) {
	require.Positive(t, Allowed().Len())
}

func FuzzParseSet(f *testing.F) {
	f.Add("0-1,8")
	f.Add("8191")
	f.Fuzz(func(t *testing.T, list string) {
		s, err := ParseSet(list)
		if err != nil {
			require.ErrorIs(t, err, ErrSet)
			return
		}
		again, err := ParseSet(s.String())
		require.NoError(t, err)
		require.Equal(t, s, again)
	})
}

func TestPatienceFollowsTheLoad(t *testing.T) {
	free := []string{"0-1", "0-1"}
	for name, c := range map[string]struct {
		ranks []string
		load  float64
		want  SpinPolicy
	}{
		"two on two":                   {free, 1, Roomy},
		"eight on two":                 {[]string{"0-1", "0-1", "0-1", "0-1", "0-1", "0-1", "0-1", "0-1"}, 4, Crowded},
		"three on two":                 {append(free, "0-1"), 1.5, Crowded},
		"bound, one each":              {[]string{"0", "1", "2", "3"}, 1, Roomy},
		"bound, two each":              {[]string{"0", "1", "0", "1"}, 2, Crowded},
		"all on one":                   {[]string{"5", "5"}, 2, Single},
		"alone":                        {[]string{"0"}, 1, Roomy},
		"others' processors are full":  {[]string{"0", "1", "1", "1"}, 1, Roomy},
		"half of a wider rank":         {[]string{"0", "0-1"}, 1.5, Crowded},
		"one that did not say":         {append(free, ""), 1.5, Crowded},
		"this one did not say":         {[]string{"", "0-1"}, 0, Default()},
		"as many as processors, mixed": {[]string{"0-3", "0-3", "2-3", "0-1"}, 1, Roomy},
	} {
		var all []Set
		for _, r := range c.ranks {
			all = append(all, set(t, r))
		}
		load := Load(all[0], all)
		require.InDelta(t, c.load, load, 1e-12, name)
		require.Equal(t, c.want, For(load, Union(all).Len()), name)
	}
}

func TestSpunSplitsLooks(t *testing.T) {
	require.Equal(t, SpinPolicy{Looks: 64, Pauses: 36, Yields: 32}, Crowded.Spun(100))
	require.Equal(t, SpinPolicy{Looks: 10, Yields: 32}, Crowded.Spun(10))
	require.Equal(t, SpinPolicy{Yields: 128}, Roomy.Spun(0))
}
