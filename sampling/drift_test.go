package sampling

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/logp"
)

func TestCompare(t *testing.T) {
	base := func() Tables {
		c, err := logp.NewCurve([]logp.Point{{Size: 8, NS: 100, Conf: 0.9}, {Size: 4096, NS: 1000, Conf: 0.9}})
		require.NoError(t, err)
		x := same(logp.Params{Os: c, Or: c, C: c, R: c, G: 200, Ls: 1000, Lh: 500, CPU: logp.Posting{A: 100, B: 50}})
		x.Conf = Conf{G: 0.9, Ls: 0.9, Lh: 0.9, CPU: 0.9}
		return x
	}
	old, now := base(), base()
	cs := Compare(&old, &now)
	require.False(t, Drifted(cs))
	require.Len(t, cs, 4+4*4, "four scalars, four curves at 8, 64, 512, 4096")

	now.Both.G = 290
	require.False(t, Drifted(Compare(&old, &now)), "less than the limit")
	now.Both.G = 310
	cs = Compare(&old, &now)
	require.True(t, Drifted(cs))
	require.Equal(t, "g 310 ns, was 200 (+55 %)", cs[0].String())
	now.Both.G = 100
	require.True(t, Drifted(Compare(&old, &now)), "faster is drift as well")
	now.Conf.G = 0.2
	require.False(t, Drifted(Compare(&old, &now)), "a figure that nobody believes")
	old.Both.G, now.Both.G, now.Conf.G = 4, 40, 0.9
	require.False(t, Drifted(Compare(&old, &now)), "below the grain")

	now = base()
	old = base()
	c, err := logp.NewCurve([]logp.Point{{Size: 8, NS: 100, Conf: 0.9}, {Size: 4096, NS: 9000, Conf: 0.9}})
	require.NoError(t, err)
	now.Both.Os = c
	cs = Compare(&old, &now)
	require.True(t, Drifted(cs))
	for _, x := range cs {
		require.Equal(t, x.Name == "os" && x.Size > 8, x.Drift, "%v", x)
	}
}
