package compare

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestPlot(t *testing.T) {
	t.Parallel()
	rows := []Row{
		{Peer: "ucx", Fabric: "shm", Test: Rate, Size: 64, Rounds: 3, Ratio: 10, RatioMin: 5, RatioMax: 20},
		{Peer: "net", Fabric: "shm", Test: Lat, Size: 8, Rounds: 3, Ratio: 0.5, RatioMin: 0.2, RatioMax: 0.7},
		{Peer: "even", Fabric: "tcp", Test: BW, Size: 1 << 20, Rounds: 1, Ratio: 1, RatioMin: 1, RatioMax: 1},
		{Peer: "gone", Fabric: "tcp", Test: BW, Size: 1 << 20, Failed: 1},
	}
	var b bytes.Buffer
	require.NoError(t, WritePlot(&b, rows))
	lines := strings.Split(b.String(), "\n")
	require.Len(t, lines, 6)
	require.Contains(t, lines[0], "1")
	require.Contains(t, lines[0], "10")
	one := strings.IndexRune(string([]rune(lines[0])), '1')
	for i, l := range lines[1:5] {
		at := utf8.RuneCountInString(l[:strings.IndexRune(l, '│')])
		require.Equal(t, one, at, "1 is where the axis says, line %d", i)
	}
	right := lines[1][strings.IndexRune(lines[1], '│'):]
	require.Contains(t, right, "█▓", "from its least ratio a bar is lighter")
	require.Contains(t, right, "█─", "and goes on as a line")
	require.True(t, strings.HasSuffix(lines[1], " 10"))
	left, _, _ := strings.Cut(lines[2], "│")
	require.Contains(t, left, "─█▓")
	require.NotContains(t, lines[3], "█")
	require.NotContains(t, lines[4], "█")
	require.Contains(t, lines[4], "not measured")

	b.Reset()
	require.NoError(t, WritePlot(&b, rows[3:]))
	require.Empty(t, b.String())
}
