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
	for list, n := range map[string]int{"": 0, "0": 1, "0-1": 2, "3,5-7": 4, "0-63": 64, "62-65,16383": 5} {
		require.Equal(t, n, set(t, list).Len(), list)
	}
	s, err := ParseSet(" 0-2,7,64-66,130\n")
	require.NoError(t, err)
	require.Equal(t, "0-2,7,64-66,130", s.String())
	require.Equal(t, []int{0, 1, 2, 7, 64, 65, 66, 130}, s.CPUs())
	require.True(t, s.Has(65))
	require.False(t, s.Has(3))
	require.False(t, s.Has(-1))
	require.False(t, s.Has(5000))
	require.Equal(t, "1-2,64", s.And(Of(1, 2, 3, 64)).String())
	require.Equal(t, "7,64-66,130", s.Without(Of(0, 1, 2, 3, 900)).String())
	require.Equal(t, "0-3", Of(0, 1).Or(Of(2, 3)).String())
	require.Equal(t, "0-1,200", Of(200).Or(Of(0, 1)).String())
	require.True(t, Of(1).Within(s))
	require.False(t, Of(1, 3).Within(s))
	require.True(t, Set{}.Within(s))
	require.False(t, Set{}.Meets(s))
	require.Equal(t, "0-3,9,70", Union([]Set{set(t, "0-2"), {}, set(t, "3,9,70")}).String())
	require.Empty(t, Of(-1, MaxCPU).CPUs())
	for _, bad := range []string{",", "1,", "-", "-1", "1-", "2-1", "1,,2", "1--2", "16384", "0-16384", "x", "1-x", "99999999999999999999"} {
		_, err := ParseSet(bad)
		require.ErrorIs(t, err, ErrSet, bad)
	}
}

// Sets of the same processors are equal, whatever they were computed from.
func TestEqualSets(t *testing.T) {
	one, wide := Of(1), Of(1, 900)
	for _, s := range []Set{wide.And(Of(0, 1)), wide.And(Of(1, 800)), wide.Without(Of(900)), one.Or(Set{}), Union([]Set{{}, one}), Of(1, MaxCPU)} {
		require.True(t, s.Equal(one))
		require.Equal(t, one, s, "for reflect.DeepEqual as well")
	}
	require.False(t, wide.Equal(one))
	require.Equal(t, Set{}, wide.Without(wide))
	require.Equal(t, Set{}, one.And(Of(0, 900)))
}

// Sets are values: what is computed from one does not change it.
func TestSetsAreImmutable(t *testing.T) {
	s := Of(0, 100)
	s.Or(Of(1)).Without(Of(100)).And(Of(0))
	Union([]Set{s, Of(2)})
	require.Equal(t, "0,100", s.String())
}

func TestAllowedIsNotEmpty(t *testing.T) {
	require.Positive(t, Allowed().Len())
}

func FuzzParseSet(f *testing.F) {
	f.Add("0-1,8")
	f.Add("16383")
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
	require.Equal(t, SpinPolicy{Polls: 64, Pauses: 36, Yields: 1024}, Crowded.Spun(100))
	require.Equal(t, SpinPolicy{Polls: 10, Yields: 1024}, Crowded.Spun(10))
	require.Equal(t, SpinPolicy{Yields: 128}, Roomy.Spun(0))
}
