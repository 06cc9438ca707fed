package logp

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParamsJSON(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(21, 1))
	for range 20 {
		p := randParams(t, r)
		b, err := json.Marshal(p)
		require.NoError(t, err)
		q, err := ParseParams(b)
		require.NoError(t, err)
		require.Equal(t, *p, q)
	}
}

func TestRates(t *testing.T) {
	t.Parallel()
	p := thesis(t)
	copying, registering, link := p.Rates()
	require.Zero(t, copying)
	require.Zero(t, registering)
	slope := (300000.0 - 2400) / (1<<20 - 8192) // ns a byte
	require.InEpsilon(t, 1e9/slope, link, 1e-9)
	p.C, p.R, p.Memory = line(t, 10, 0.1, 0), line(t, 100, 0.5, 0), line(t, 0, 2, 0)
	copying, registering, link = p.Rates()
	require.InEpsilon(t, 1e10, copying, 1e-9)
	require.InEpsilon(t, 2e9, registering, 1e-9)
	require.InEpsilon(t, 1e9/(slope+2), link, 1e-9)
}

func TestParamsRefuses(t *testing.T) {
	t.Parallel()
	for _, change := range []func(*Params){
		func(p *Params) { p.G = -1 },
		func(p *Params) { p.Ls = math.NaN() },
		func(p *Params) { p.Lh = math.Inf(1) },
		func(p *Params) { p.CPU.A = 2 * MaxNS },
		func(p *Params) { p.CPU.B = -1 },
		func(p *Params) { p.Extra[1].PerByte = math.NaN() }, func(p *Params) { p.Extra[1].PerFirst = math.Inf(1) },
		func(p *Params) { p.Extra[2].Fixed = -2 * MaxNS },
		func(p *Params) { p.Scale[0] = MaxScale + 1 },
		func(p *Params) { p.Scale[0] = -1 },
		func(p *Params) { p.Scale[0] = math.NaN() },
	} {
		p := thesis(t)
		require.NoError(t, p.Validate())
		change(p)
		require.ErrorIs(t, p.Validate(), ErrParams)
	}
	for _, s := range []string{
		"", "null null", "[]", `{"gap":1}`, `{"g":-1}`, `{"g":1} x`, `{"os":[{"size":3},{"size":2}]}`,
		`{"scale":[9,0,0]}`, `{"g":1e400}`, strings.Repeat(" ", maxParamsJSON+1),
	} {
		_, err := ParseParams([]byte(s))
		require.ErrorIs(t, err, ErrParams, "%.40q", s)
	}
}

func TestModeText(t *testing.T) {
	t.Parallel()
	for m := range Mode(NumModes) {
		b, err := json.Marshal(m)
		require.NoError(t, err)
		var back Mode
		require.NoError(t, json.Unmarshal(b, &back))
		require.Equal(t, m, back)
	}
	_, err := ParseMode("push")
	require.ErrorIs(t, err, ErrParams)
	_, err = json.Marshal(Mode(3))
	require.Error(t, err)
	require.Equal(t, "mode(3)", Mode(3).String())
	require.Equal(t, "learned", TermLearned.String())
	require.Equal(t, "term(99)", Term(99).String())
}

func TestBatchRefuses(t *testing.T) {
	t.Parallel()
	good := func() *Batch { return &Batch{Messages: uniform(2, 8), Limits: usual()} }
	require.NoError(t, good().Validate())
	for i, change := range []func(*Batch){
		func(b *Batch) { b.Messages[1].Size = -1 },
		func(b *Batch) { b.Messages[1].Size = MaxSize + 1 },
		func(b *Batch) { b.Messages[0].Flags = knownFlags + 1 },
		func(b *Batch) { b.Messages = make([]Message, MaxMessages+1) },
		func(b *Batch) { b.Wait[0] = math.NaN() },
		func(b *Batch) { b.Wait[2] = -1 },
		func(b *Batch) { b.Limits.Header = -1 },
		func(b *Batch) { b.Limits.Segment = 1 << 20 },
		func(b *Batch) { b.Limits.GatherMax = MaxSize + 1 },
		func(b *Batch) { b.Limits.EagerMax = MaxSize + 1 },
		func(b *Batch) { b.Limits.MaxSGE = -1 },
	} {
		b := good()
		change(b)
		require.ErrorIs(t, b.Validate(), ErrBatch, "%d", i)
	}
}

// Whatever is accepted can be evaluated, written and read again.
func FuzzParseParams(f *testing.F) {
	good, _ := json.Marshal(thesis(f))
	f.Add(good)
	f.Add([]byte(`{"os":[{"size":0,"ns":1,"conf":1}],"g":220,"scale":[1,0.5,0]}`))
	f.Add([]byte(`{"os":[{"size":1099511627776,"ns":6e11}],"extra":[{"fixed":-6e11},{},{}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := ParseParams(b)
		if err != nil {
			require.ErrorIs(t, err, ErrParams)
			return
		}
		require.NoError(t, p.Validate())
		batch := &Batch{Messages: sizes(0, 1, 4000, MaxSize), Limits: plain()}
		for m := range Mode(NumModes) {
			if c, err := p.Cost(batch, m); err == nil {
				require.False(t, math.IsNaN(c.Total()) || math.IsInf(c.Total(), 0))
			}
		}
		again, err := json.Marshal(p)
		require.NoError(t, err)
		q, err := ParseParams(again)
		require.NoError(t, err)
		require.Equal(t, p, q)
	})
}
