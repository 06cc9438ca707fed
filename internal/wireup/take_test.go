package wireup

import (
	"context"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/testutil"
)

// What is taken back takes no room, and may be published again.
func TestTake(t *testing.T) {
	t.Parallel()
	srv, root := serve(t, "unix", 2)
	js := joinAll(t, root, 2)
	ctx := t.Context()
	val := make([]byte, MaxValue)
	for round := range 2 * maxStored / MaxValue {
		val[0] = byte(round)
		require.NoError(t, js[0].Put(ctx, "k", val), "round %d", round)
		got, err := js[1].Get(ctx, 0, "k")
		require.NoError(t, err)
		require.Equal(t, byte(round), got[0])
		require.NoError(t, js[0].Take("k"))
	}
	require.NoError(t, js[0].Take("never"))
	require.NoError(t, js[1].Take("k"), "it is another rank's")
	require.NoError(t, each(js, func(j *Job) error { return j.Barrier(ctx, "taken") }))
	testutil.Holding(&srv.mu, func() {
		require.Empty(t, srv.st.vals)
		require.Zero(t, srv.st.stored[0])
	})
}

// A rank tells the launcher of another that hangs.
func TestHung(t *testing.T) {
	t.Parallel()
	type report struct {
		from, rank int
		why        string
	}
	reports := make(chan report, 1)
	ln, err := net.Listen("unix", t.TempDir()+"/s")
	require.NoError(t, err)
	srv, err := Serve(t.Context(), ln, ServerConfig{Size: 3, Token: testToken, Hung: func(from, rank int, why string) {
		reports <- report{from, rank, why}
	}})
	require.NoError(t, err)
	t.Cleanup(func() { srv.Close() })
	root := "unix:" + ln.Addr().String()
	require.NoError(t, join(t, root, 2, 3).Hung(1, "no progress"))
	testutil.Within(t, testutil.Limit, "the report", func() { require.Equal(t, report{2, 1, "no progress"}, <-reports) })

	liar := admitted(t, root, 0, 3)
	lie := message{typ: msgHung, rank: 3}
	require.NoError(t, liar.say(lie.append(nil)))
	ended(t, liar)
}

// Where the process may not seal, joining says so, and does not try again.
func TestJoinWhereSealingIsForbidden(t *testing.T) {
	t.Parallel()
	if !testutil.Alone(t, "GODEBUG=fips140=only") {
		return
	}
	_, root := serve(t, "unix", 2)
	ctx, cancel := context.WithTimeout(t.Context(), testutil.Limit)
	defer cancel()
	_, err := Join(ctx, Config{Rank: 1, Size: 2, Root: root, Token: testToken})
	require.ErrorContains(t, err, "AES-GCM")
	require.NotErrorIs(t, err, ErrTimeout)
}
