package bubble

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

func TestInside(t *testing.T) {
	require.False(t, Inside())
	synctest.Test(t, func(*testing.T) {
		require.True(t, Inside())
		before := Now()
		Nap()
		require.GreaterOrEqual(t, Now(), before)
	})
	require.False(t, Inside())
}
