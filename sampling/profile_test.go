package sampling

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric/sim"
	"github.com/seed33544411/rma/logp"
)

func someProfile() *Profile {
	t, err := merge(someHalf(1), someHalf(2))
	if err != nil {
		panic(err)
	}
	return &Profile{
		Key:  Key{Link: "sim", Device: "dev/../0", Class: SameHost, Version: Version},
		Caps: capsOf(sim.CapsLike("sim")), Made: time.Now().UTC().Truncate(time.Second), Tables: t,
	}
}

func TestStoreRoundTrip(t *testing.T) {
	s := &Store{Dir: filepath.Join(t.TempDir(), "new", "directory")}
	p := someProfile()
	caps := sim.CapsLike("sim")
	_, err := s.Load(p.Key, caps)
	require.ErrorIs(t, err, ErrNoProfile)
	require.NoError(t, s.Save(p))
	require.NoError(t, s.Save(p), "again")
	got, err := s.Load(p.Key, caps)
	require.NoError(t, err)
	require.Equal(t, digest(t, &p.Tables), got.digest)
	require.Equal(t, digest(t, &p.Tables), digest(t, &got.Tables))
	got.digest = Digest{}
	require.Equal(t, p, got)
	es, err := os.ReadDir(s.Dir)
	require.NoError(t, err)
	require.Len(t, es, 1, "no temporary files stay")
	require.Equal(t, s.Dir, filepath.Dir(s.Path(p.Key)), "a device's name does not lead out of the directory")

	other := p.Key
	other.Device = "dev0" // the same readable part
	_, err = s.Load(other, caps)
	require.ErrorIs(t, err, ErrNoProfile)
}

func TestStoreRefuses(t *testing.T) {
	caps := sim.CapsLike("sim")
	now := time.Now()
	for what, c := range map[string]struct {
		spoil func(*Profile)
		want  error
	}{
		"odd curve":  {func(p *Profile) { p.Tables.Both.Ls = 1e300 }, ErrProfile},
		"old":        {func(p *Profile) { p.Made = now.Add(-31 * 24 * time.Hour) }, ErrStale},
		"of tomorow": {func(p *Profile) { p.Made = now.Add(24 * time.Hour) }, ErrStale},
		"other caps": {func(p *Profile) { p.Caps.MaxSGE++ }, ErrStale},
		"no curve": {func(p *Profile) {
			p.Tables.Both.Os = p.Tables.Both.R
			p.Tables.Both.C = Defaults("").Os
			p.Tables = Tables{}
		}, ErrProfile},
		"negative":  {func(p *Profile) { p.Tables.Forward.G = -1 }, ErrProfile},
		"bad class": {func(p *Profile) { p.Key.Class = "" }, ErrNoProfile},
	} {
		s := &Store{Dir: t.TempDir(), now: func() time.Time { return now }}
		p := someProfile()
		key := p.Key
		c.spoil(p)
		require.NoError(t, s.Save(p), what)
		_, err := s.Load(key, caps)
		require.ErrorIs(t, err, c.want, what)
	}
	// A file under the right name with another key inside.
	s := &Store{Dir: t.TempDir()}
	p := someProfile()
	path := s.Path(p.Key)
	p.Key.Version = "older"
	b, err := p.Marshal()
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, b, 0o600))
	_, err = s.Load(someProfile().Key, caps)
	require.ErrorIs(t, err, ErrStale)

	require.NoError(t, os.WriteFile(path, make([]byte, maxProfile+1), 0o600))
	_, err = s.Load(someProfile().Key, caps)
	require.ErrorIs(t, err, ErrProfile)
	require.NoError(t, s.Retire(someProfile().Key))
	require.NoError(t, s.Retire(someProfile().Key), "it is gone already")
	require.NoError(t, os.Mkdir(path, 0o700))
	_, err = s.Load(someProfile().Key, caps)
	require.Error(t, err)
}

func TestStoreThatCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	s := &Store{Dir: filepath.Join(dir, "file")}
	require.Error(t, s.Save(someProfile()))

	// It does not cost the session its result.
	o := Options{Mode: Force, Store: s, MaxSize: 4096, StepTimeout: 30 * time.Second}
	a, b := sessions(t, simLinks(sim.Options{}), o, o)
	r, _ := agreed(t, a, b)
	require.Error(t, r.SaveErr)
	require.Equal(t, FromMeasurement, r.Source)
}

func TestParseProfileOfOtherFormats(t *testing.T) {
	for text, want := range map[string]error{
		``: ErrProfile, `{}`: ErrStale, `null`: ErrStale, `[]`: ErrProfile, `{"format":2}`: ErrProfile, `{"format":1}`: ErrStale,
		`{"format":3,"new":true}`: ErrStale, `{"format":0}`: ErrStale, `{"format":2}{}`: ErrProfile,
	} {
		_, err := ParseProfile([]byte(text))
		require.ErrorIs(t, err, want, text)
	}
}

func FuzzParseProfile(f *testing.F) {
	b, err := someProfile().Marshal()
	require.NoError(f, err)
	f.Add(b)
	f.Add([]byte(`{"format":1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := ParseProfile(b)
		if err != nil {
			require.True(t, errors.Is(err, ErrProfile) || errors.Is(err, ErrStale), "%v", err)
			return
		}
		require.NoError(t, p.Tables.validate())
		b, err = p.Marshal()
		require.NoError(t, err)
		q, err := ParseProfile(b)
		require.NoError(t, err)
		require.Equal(t, digest(t, &p.Tables), digest(t, &q.Tables))
	})
}

func FuzzParseMessage(f *testing.F) {
	b, err := json.Marshal(message{Half: someHalf(3), Made: 5})
	require.NoError(f, err)
	f.Add(b)
	f.Add([]byte(`{"verdict":"keep"}`))
	f.Add([]byte(`{"error":"x"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := parseMessage(b)
		if err != nil {
			require.ErrorIs(t, err, ErrProtocol)
			return
		}
		if m.Half != nil {
			_, err := merge(m.Half, someHalf(1))
			require.NoError(t, err)
		}
	})
}

// The second start takes the profile of the first, on both sides; a damaged
// one, or one that only one side has, is measured again.
func cachedOver(t *testing.T, open opener) {
	key := Key{Class: SameHost}
	sa, sb := &Store{Dir: t.TempDir()}, &Store{Dir: t.TempDir()}
	unsure := false
	run := func() Result {
		// Ample: on a busy machine 50 ms may pass with nothing measured, which is
		// not saved.
		oa := Options{Store: sa, Key: key, Budget: 500 * time.Millisecond, StepTimeout: 30 * time.Second}
		ob := oa
		ob.Store = sb
		a, b := sessions(t, open, oa, ob)
		r, rb := agreed(t, a, b)
		unsure = savedUnlessUnsure(t, r, rb)
		return r
	}
	one := run()
	require.Equal(t, FromMeasurement, one.Source)
	if unsure {
		for _, s := range []*Store{sa, sb} {
			es, err := filepath.Glob(filepath.Join(s.Dir, "*"))
			require.NoError(t, err)
			require.Empty(t, es, "nothing was measured")
		}
		return
	}
	// Whether the link is plausible a moment later is up to the machine's load;
	// the tables are the same in that case.
	two := run()
	if two.Source == FromProfile {
		require.Equal(t, digest(t, &one.Tables), digest(t, &two.Tables))
		require.Equal(t, one.Made, two.Made)
	}
	es, err := filepath.Glob(filepath.Join(sb.Dir, "*"))
	require.NoError(t, err)
	require.Len(t, es, 1)
	require.NoError(t, os.Remove(es[0]))
	require.Equal(t, FromMeasurement, run().Source, "only one side has it")
	if unsure {
		return
	}
	es, err = filepath.Glob(filepath.Join(sa.Dir, "*"))
	require.NoError(t, err)
	require.NoError(t, os.Truncate(es[0], 100))
	require.Equal(t, FromMeasurement, run().Source, "damaged")
}

// savedUnlessUnsure checks that both sides saved, or found together that they
// had measured too little: the budget may pass while a busy machine does other
// things.
func savedUnlessUnsure(t *testing.T, a, b Result) (unsure bool) {
	if errors.Is(a.SaveErr, ErrUnsure) {
		require.ErrorIs(t, b.SaveErr, ErrUnsure)
		return true
	}
	require.NoError(t, errors.Join(a.SaveErr, b.SaveErr))
	return false
}

func TestCached(t *testing.T) {
	for name, open := range realLinks {
		t.Run(name, func(t *testing.T) { cachedOver(t, open) })
	}
}

func TestImplausibleProfileIsMeasuredAgain(t *testing.T) {
	for name, spoil := range map[string]func(p *logp.Params){
		"all":     func(p *logp.Params) { p.Ls, p.G = 1e9, 1e9 },
		"latency": func(p *logp.Params) { p.Ls *= 1000 }, // while writes in a chain take as long as they should
		"none":    func(*logp.Params) {},
	} {
		t.Run(name, func(t *testing.T) {
			o := Options{Store: &Store{Dir: t.TempDir()}, MaxSize: 1 << 16}
			w := adapter()
			a, b := inWorld(t, w, o)
			require.Equal(t, FromMeasurement, inTurns(t, w, a, b).Source)
			p, err := o.Store.Load(a.opt.Key, a.caps)
			require.NoError(t, err)
			spoil(&p.Tables.Forward)
			require.NoError(t, o.Store.Save(p))
			w = adapter()
			a, b = inWorld(t, w, o)
			require.NotNil(t, a.saved)
			require.Equal(t, name == "none", inTurns(t, w, a, b).Source == FromProfile)
		})
	}
}

func TestModes(t *testing.T) {
	o := Options{Store: &Store{Dir: t.TempDir()}, StepTimeout: 30 * time.Second, MaxSize: 4096}
	for _, c := range []struct {
		a, b Mode
		want Source
	}{
		{Off, Force, FromDefaults}, {Cached, Off, FromDefaults}, {Cached, Force, FromMeasurement}, {Force, Cached, FromMeasurement},
	} {
		oa, ob := o, o
		oa.Mode, ob.Mode = c.a, c.b
		a, b := sessions(t, simLinks(sim.Options{}), oa, ob)
		r, _ := agreed(t, a, b)
		require.Equal(t, c.want, r.Source)
		require.NotEmpty(t, r.Source.String())
	}
	require.True(t, strings.HasPrefix(Source(9).String(), "source("))
}

// A profile as large as a sampling of a link gives with all points refined.
func BenchmarkLoadProfile(b *testing.B) {
	s := &Store{Dir: b.TempDir()}
	p := someProfile()
	for _, q := range []*logp.Params{&p.Tables.Forward, &p.Tables.Backward, &p.Tables.Both} {
		var ps []logp.Point
		for i := range maxSizes {
			ps = append(ps, logp.Point{Size: int64(i) * 20000, NS: float64(i) * 1234.567, Conf: 0.875})
		}
		var err error
		q.Os, err = logp.NewCurve(ps)
		require.NoError(b, err)
	}
	require.NoError(b, s.Save(p))
	caps := sim.CapsLike("sim")
	for b.Loop() {
		if _, err := s.Load(p.Key, caps); err != nil {
			b.Fatal(err)
		}
	}
	if st, err := os.Stat(s.Path(p.Key)); err == nil {
		b.SetBytes(st.Size())
	}
}
