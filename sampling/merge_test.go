package sampling

import (
	"encoding/json"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/logp"
)

// someHalf is a valid half, different for every seed.
func someHalf(seed uint64) *Half {
	rng := rand.New(rand.NewPCG(seed, 3))
	curve := func(slope float64) logp.Curve {
		ps := []logp.Point{{Size: 0, NS: rng.Float64(), Conf: 0.5}}
		for m := int64(8); m <= 1<<16; m *= int64(2 + rng.IntN(3)) {
			ps = append(ps, logp.Point{Size: m, NS: slope * (1 + rng.Float64()) * float64(m), Conf: rng.Float64()})
		}
		c, err := logp.FitMonotone(ps)
		if err != nil {
			panic(err)
		}
		return c
	}
	h := &Half{Complete: curve(1), RoundTrip: 1000, Read: 1000}
	h.Params = logp.Params{
		Os: curve(0.3), Or: curve(0.01), C: curve(0.1), R: curve(0.2),
		G: rng.Float64() * 100, Ls: rng.Float64() * 1000, Lh: 10, CPU: logp.Posting{A: 30, B: rng.Float64()},
	}
	return h
}

func halfJSON() string {
	b, err := json.Marshal(someHalf(1))
	if err != nil {
		panic(err)
	}
	return string(b)
}

func TestMerge(t *testing.T) {
	for seed := range uint64(50) {
		a, b := someHalf(2*seed), someHalf(2*seed+1)
		// What the other side holds has been through JSON.
		ma, err := json.Marshal(message{Half: a})
		require.NoError(t, err)
		got, err := parseMessage(ma)
		require.NoError(t, err)
		x, err := merge(a, b)
		require.NoError(t, err)
		y, err := merge(got.Half, b)
		require.NoError(t, err)
		require.Equal(t, digest(t, &x), digest(t, &y))
		for _, d := range []struct {
			mine, other *Half
			to          *logp.Params
		}{{a, b, &x.Forward}, {b, a, &x.Backward}} {
			whole, err := extend(d.mine.Params.Os, d.other.Params.Os)
			require.NoError(t, err)
			os, memory, err := whole.Split(d.to.G + d.to.CPU.B + d.to.Or.At(0))
			require.NoError(t, err)
			require.Equal(t, os, d.to.Os)
			require.Equal(t, memory, d.to.Memory)
		}
		require.Equal(t, b.Params.Or, x.Forward.Or, "who receives")
		require.InEpsilon(t, (a.Params.G+b.Params.G)/2, x.Both.G, 1e-12)
		for m := int64(1); m < 1<<14; m = m*3 + 1 {
			lo, hi := a.Params.C.At(m), b.Params.C.At(m)
			require.GreaterOrEqual(t, x.Both.C.At(m), 0.5*min(lo, hi), "%d bytes", m)
			require.LessOrEqual(t, x.Both.C.At(m), 2*max(lo, hi), "%d bytes", m)
		}
	}
	var none logp.Curve
	one, err := middleCurve(none, someHalf(1).Params.R)
	require.NoError(t, err)
	require.Equal(t, someHalf(1).Params.R, one)
}

func TestTheBelievedSideCounts(t *testing.T) {
	a, b := someHalf(1), someHalf(2)
	a.Params.G, b.Params.G = 100, 1000
	a.Conf.G, b.Conf.G = 0.9, 0
	x, err := merge(a, b)
	require.NoError(t, err)
	require.InDelta(t, 101, x.Both.G, 1)
	require.Equal(t, 1000.0, x.Backward.G)
	c := func(ns, conf float64) logp.Curve {
		k, err := logp.NewCurve([]logp.Point{{Size: 8, NS: ns, Conf: conf}, {Size: 64, NS: 2 * ns, Conf: conf}})
		require.NoError(t, err)
		return k
	}
	k, err := middleCurve(c(10, 0.5), c(20, 0.5))
	require.NoError(t, err)
	require.Equal(t, 15.0, k.At(8))
	require.Equal(t, 30.0, k.At(64))
	k, err = middleCurve(c(10, 0.9), c(20, 0.1))
	require.NoError(t, err)
	require.InDelta(t, 11, k.At(8), 1e-9)
}

// A round trip goes there and back, whichever side measures it: if one of the two was disturbed,
// the other one counts for both directions.
func TestOneRoundTripForBothDirections(t *testing.T) {
	const conf = 0.7
	for _, trips := range [][2]float64{{30_000, 400}, {400, 30_000}, {0, 400}, {400, 0}, {400, 400}} {
		a, b := someHalf(1), someHalf(2)
		for i, h := range []*Half{a, b} {
			h.RoundTrip, h.Read = trips[i], 250
			if trips[i] == 400 {
				h.Conf.Ls = conf
			}
		}
		disturbed := *a
		x, err := merge(a, b)
		require.NoError(t, err)
		require.Equal(t, disturbed, *a, "the measurements stay as they were")
		for _, p := range []*logp.Params{&x.Forward, &x.Backward, &x.Both} {
			post := p.CPU.A + p.CPU.B
			require.InDelta(t, 200-post, p.Ls, 0.01, "%v", trips)
			require.InDelta(t, 50, p.Lh, 0.01, "%v", trips)
		}
		require.Equal(t, conf, x.Conf.Ls)
	}
	a, b := someHalf(1), someHalf(2)
	a.RoundTrip, b.RoundTrip, a.Read, b.Read = 0, 0, 0, 0
	x, err := merge(a, b)
	require.NoError(t, err)
	require.Equal(t, a.Params.Ls, x.Forward.Ls, "defaults")
	require.Equal(t, b.Params.Lh, x.Backward.Lh)
}

// A side whose budget ended early goes on as the other does.
func TestExtend(t *testing.T) {
	short, err := logp.NewCurve([]logp.Point{{Size: 8, NS: 10, Conf: 1}, {Size: 64, NS: 500, Conf: 0.1}})
	require.NoError(t, err)
	long, err := logp.NewCurve([]logp.Point{{Size: 0, NS: 100, Conf: 1}, {Size: 1024, NS: 1124, Conf: 0.8}})
	require.NoError(t, err)
	got, err := extend(short, long)
	require.NoError(t, err)
	require.Equal(t, 500.0+960, got.At(1024))
	require.Equal(t, 0.4, got.Confidence(1024))
	got, err = extend(long, short)
	require.NoError(t, err)
	require.Equal(t, long, got)
}

func TestDigest(t *testing.T) {
	a, b := same(Defaults("shm")), same(Defaults("tcp"))
	require.NotEqual(t, digest(t, &a), digest(t, &b))
	require.NotZero(t, digest(t, &a))
	for _, l := range []string{"shm", "ibv", "tcp", "?"} {
		d := same(Defaults(l))
		require.NoError(t, d.validate())
	}
}

// The latency of a path of milliseconds is not that of the defaults.
func TestKnown(t *testing.T) {
	x, err := merge(someHalf(1), someHalf(2))
	require.NoError(t, err)
	for _, d := range []struct {
		ls, cpu    float64
		near, long bool
	}{{0, 0, false, false}, {0.5, 0, true, true}, {0, 0.5, true, false}, {0.5, 0.5, true, true}} {
		x.Conf.Ls, x.Conf.CPU = d.ls, d.cpu
		require.Equal(t, d.near, x.Known(Near), "%+v", d)
		require.Equal(t, d.near, x.Known(""), "%+v", d)
		require.Equal(t, d.long, x.Known(Long), "%+v", d)
		require.Equal(t, d.long, x.Known(Long16), "%+v", d)
	}
}
