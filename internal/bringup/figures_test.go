package bringup

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/bulk"
	"github.com/seed33544411/rma/sampling"
)

// anyFigures returns figures that a rank may publish.
func anyFigures(t testing.TB) (p published, text string) {
	up, down := sampling.Defaults("shm"), sampling.Defaults("tcp")
	p = published{publishedVersion, figures{Up: &up, Down: &down, Class: sampling.SharedL3}, &copyThresholds{bulk.Plan{String: 65536, Stream: 1 << 20}, "measured"}}
	b, err := json.Marshal(p)
	require.NoError(t, err)
	return p, string(b)
}

// The other ranks read the figures that one rank publishes, each direction unchanged; an
// invalid value is rejected as a whole.
func TestPublishedFigures(t *testing.T) {
	p, text := anyFigures(t)
	got, err := parsePublished([]byte(text))
	require.NoError(t, err)
	require.Equal(t, p, got)
	p.Copies, p.Class = nil, ""
	b, err := json.Marshal(p)
	require.NoError(t, err)
	got, err = parsePublished(b)
	require.NoError(t, err)
	require.Equal(t, p, got)
	for n := range text {
		_, err := parsePublished([]byte(text[:n]))
		require.Error(t, err, "%d bytes", n)
	}
	for from, to := range map[string]string{
		`"version":2`: `"version":3`, `"up":{`: `"Up":null,"upwards":{`, `"class"`: `"klass"`, `"host-l3"`: `"host-l9"`,
		`"String":65536`: `"String":1`, `"Stream":1048576`: `"Stream":-1`,
		`"source":"measured"`: `"source":"` + strings.Repeat("m", 33) + `"`, `"copies":{`: `"copies":[{`,
	} {
		bad := strings.Replace(text, from, to, 1)
		require.NotEqual(t, text, bad, from)
		got, err := parsePublished([]byte(bad))
		require.Error(t, err, bad)
		require.Equal(t, published{}, got)
	}
	for _, bad := range []string{`[]`, `{}`, `{"version":1}`, text + "{}", `[{},{},{}]`} {
		_, err := parsePublished([]byte(bad))
		require.Error(t, err, bad)
	}
}

// The text that ranks publish keeps its form: the golden file is read, and written again
// byte for byte.
func TestPublishedGolden(t *testing.T) {
	golden, err := os.ReadFile("testdata/published.json")
	require.NoError(t, err)
	p, err := parsePublished(golden)
	require.NoError(t, err)
	require.Equal(t, "measured", p.Copies.Source)
	again, err := json.Marshal(p)
	require.NoError(t, err)
	require.Equal(t, string(golden), string(again))
}

func FuzzParsePublished(f *testing.F) {
	_, text := anyFigures(f)
	f.Add([]byte(text))
	f.Add([]byte(`{"version":1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := parsePublished(b)
		if err != nil {
			require.Equal(t, published{}, p)
			return
		}
		require.NoError(t, p.Up.Validate())
		require.NoError(t, p.Down.Validate())
		again, err := json.Marshal(p)
		require.NoError(t, err)
		back, err := parsePublished(again)
		require.NoError(t, err)
		require.Equal(t, p, back)
	})
}
