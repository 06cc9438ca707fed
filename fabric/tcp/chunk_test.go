package tcp

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWholeSegments(t *testing.T) {
	t.Parallel()
	for _, c := range [][3]int{{1 << 20, 65483, 16 * 65483}, {1 << 20, 1448, 724 * 1448}, {1000, 1448, 1000}, {1448, 1448, 1448}, {1 << 20, 0, 1 << 20}, {5, -1, 5}} {
		require.Equal(t, c[2], wholeSegments(c[0], c[1]), "%v", c)
	}
}
