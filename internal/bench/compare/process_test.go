//go:build unix

package compare

import (
	"context"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/testutil"
)

// The processes of a launcher end with it, even if neither reacts to the request to
// end.
func TestNothingIsLeftBehind(t *testing.T) {
	t.Parallel()
	for _, script := range []string{"sleep 600 & echo $!; wait", "trap '' TERM; (trap '' TERM; sleep 600) & echo $!; wait"} {
		ctx, cancel := context.WithCancel(testutil.Context(t, 60*time.Second))
		var out bounded
		c := command(ctx, []string{"/bin/sh", "-c", script}, nil, &out, &out)
		r, w, err := os.Pipe()
		require.NoError(t, err)
		c.Stdout = w
		require.NoError(t, start(c, &Place{}, clientSide))
		require.NoError(t, w.Close())
		b := make([]byte, 64)
		n, err := r.Read(b)
		require.NoError(t, err)
		require.NoError(t, r.Close())
		child, err := strconv.Atoi(strings.TrimSpace(string(b[:n])))
		require.NoError(t, err)
		cancel()
		require.Error(t, wait(c))
		require.Eventually(t, func() bool {
			// It may remain a zombie if there is no init process to reap it.
			s, err := os.ReadFile("/proc/" + strconv.Itoa(child) + "/stat")
			return err != nil && syscall.Kill(child, 0) != nil || strings.Contains(string(s), ") Z ")
		}, testutil.Limit, time.Millisecond)
	}
}

// Several pairs run at once; the rates of a stream are summed.
func TestPairs(t *testing.T) {
	t.Parallel()
	needProc(t)
	p := &program{Peer: fakePeer(t, "well"), job: Job{Fabric: "shm", Place: Place{Addr: "127.0.0.1"}, Limit: testutil.Limit}, pairs: 3}
	s, err := p.once(testutil.Context(t, 60*time.Second), Test{Rate, 64}, 5)
	require.NoError(t, err)
	require.Equal(t, 6.0, s.Figure)
	require.Positive(t, s.CPU)
	s, err = p.once(testutil.Context(t, 60*time.Second), Test{Lat, 64}, 5)
	require.NoError(t, err)
	require.Equal(t, 2.0, s.Figure)
}

func TestListensUnix(t *testing.T) {
	t.Parallel()
	const table = `Num       RefCount Protocol Flags    Type St Inode Path
0000000000000000: 00000002 00000000 00010000 0001 01 20484 /tmp/a
0000000000000000: 00000003 00000000 00000000 0001 03 20485 /tmp/b
`
	require.True(t, listensUnix(table, "/tmp/a"))
	require.False(t, listensUnix(table, "/tmp/b"), "connected")
	require.False(t, listensUnix(table, "/tmp"))
}

// A test that a peer does not support does not fail the whole comparison, whether or not
// peer and test were named.
func TestWhatAPeerDoesNotMakeIsLeftOut(t *testing.T) {
	t.Parallel()
	gone := fakePeer(t, "well")
	gone.Name, gone.Needs = "gone", []Need{{Program: "no-such-program", Package: "nothing"}}
	p := fakePeer(t, "well")
	tests := []Test{{Rate, 8}, {Put, 8}}
	r := Request{Fabric: "shm", Peers: []*Peer{gone, p}, Tests: tests}
	_, err := r.Check()
	require.ErrorIs(t, err, ErrMissing)
	r.AnyPeer = true
	left, err := r.Check()
	require.NoError(t, err)
	require.Equal(t, []*Peer{p}, r.Peers)
	require.Len(t, left, 2)
	require.ErrorIs(t, left[0], ErrMissing)
	require.ErrorIs(t, left[1], ErrRefused)
	require.ErrorContains(t, left[1], "want lat, rate")
	r.Tests = []Test{{Put, 8}, {PutBW, 8}}
	_, err = r.Check()
	require.ErrorIs(t, err, ErrTest, "nobody is left")
	require.ErrorIs(t, err, ErrRefused, "and why")
	puts := fakePeer(t, "well")
	puts.Tests = map[string][]Kind{"shm": {Put}}
	r = Request{Fabric: "shm", Peers: []*Peer{p, puts}, Tests: tests[1:]}
	left, err = r.Check()
	require.NoError(t, err, "a peer that makes none of the tests")
	require.Equal(t, []*Peer{puts}, r.Peers)
	require.Len(t, left, 1)
	r = Request{Fabric: "tcp", Peers: []*Peer{p}, Tests: tests}
	_, err = r.Check()
	require.ErrorIs(t, err, ErrFabric)
}
