package sampling

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/logp"
)

// A start with a saved profile checks it and does nothing else: the requests that
// it posts are few, and known. What batches have taught comes with it.
func TestCachedStartMeasuresNothing(t *testing.T) {
	store := &Store{Dir: t.TempDir()}
	extra := [logp.NumModes]logp.Extra{{Fixed: 12}, {PerMessage: -3.5}, {PerOp: 700, PerByte: 0.25}}
	fit := Fit{Probes: 11, Error: [logp.NumModes]float64{0.1, 0.25, 0}}
	var first Result
	{
		a, b := inWorld(t, adapter(), Options{Store: store, Later: true, MaxSize: 1 << 16})
		first = inTurns(t, a.p.EP.(*slowEP).w, a, b)
		require.Equal(t, FromMeasurement, first.Source)
		_, err := store.Load(a.opt.Key, a.caps)
		require.ErrorIs(t, err, ErrNoProfile, "saving waits for what is to be added")
		require.Equal(t, DefaultBudget, first.Budget)
		require.Greater(t, first.Posts, 500)
		require.Positive(t, first.Spent())
		require.LessOrEqual(t, first.Spent(), DefaultBudget*6/5)
		first.SetExtra(extra, fit)
		require.NoError(t, a.Save(first))
		require.NoError(t, b.Save(first))
	}
	for range 2 {
		w := adapter()
		a, b := inWorld(t, w, Options{Store: store, Later: true, MaxSize: 1 << 16})
		r := inTurns(t, w, a, b)
		require.Equal(t, FromProfile, r.Source)
		require.Equal(t, digest(t, &first.Tables), digest(t, &r.Tables))
		require.Equal(t, fit, r.Fit)
		for _, p := range []logp.Params{r.Out(), r.In(), r.Both} {
			require.Equal(t, extra, p.Extra)
		}
		// One ball to wake the other, those of the check, a verdict and a farewell of two
		// writes each; the other side answers the balls.
		require.LessOrEqual(t, a.posts, 1+recheckN+4)
		require.LessOrEqual(t, b.posts, 1+recheckN+4)
		require.Nil(t, a.data, "no memory to measure with")
		require.NoError(t, a.Save(r), "nothing to save")
	}
}

// A fit that cannot be is refused. Files of the format that knew none are stale:
// TestParseProfileOfOtherFormats.
func TestFitInProfile(t *testing.T) {
	b, err := someProfile().Marshal()
	require.NoError(t, err)
	p, err := ParseProfile(b)
	require.NoError(t, err)
	require.Zero(t, p.Tables.Fit)
	for _, f := range []Fit{{Probes: -1}, {Probes: maxProbes + 1}, {Error: [logp.NumModes]float64{0, 0, 1.5}}} {
		q := *p
		q.Tables.Fit = f
		b, err := q.Marshal()
		require.NoError(t, err)
		_, err = ParseProfile(b)
		require.ErrorIs(t, err, ErrProfile)
	}
}
