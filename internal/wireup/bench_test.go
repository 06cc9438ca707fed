package wireup

import (
	"context"
	"net"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkOpen is what opening an engine asks of the server, for a job of 64
// ranks: joining, two exchanges of offers of 100 bytes, a barrier and leaving.
func BenchmarkOpen(b *testing.B) {
	const n = 64
	offer := make([]byte, 100)
	b.ReportAllocs()
	for b.Loop() {
		ln, err := net.Listen("unix", filepath.Join(b.TempDir(), "s"))
		require.NoError(b, err)
		s, err := Serve(context.Background(), ln, ServerConfig{Size: n, Token: testToken})
		require.NoError(b, err)
		js := make([]*Job, n)
		for r := range js {
			js[r], err = Join(context.Background(), Config{Rank: r, Size: n, Root: "unix:" + ln.Addr().String(), Token: testToken})
			require.NoError(b, err)
		}
		require.NoError(b, each(js, func(j *Job) error {
			for range 2 {
				if _, err := j.AllGather(context.Background(), "offer", offer); err != nil {
					return err
				}
			}
			if err := j.Barrier(context.Background(), "open"); err != nil {
				return err
			}
			return j.Close()
		}))
		require.NoError(b, s.Close())
	}
}

// BenchmarkSend is the server's part of a connection request.
func BenchmarkSend(b *testing.B) {
	ln, err := net.Listen("unix", filepath.Join(b.TempDir(), "s"))
	require.NoError(b, err)
	s, err := Serve(context.Background(), ln, ServerConfig{Size: 2, Token: testToken})
	require.NoError(b, err)
	defer s.Close()
	var js [2]*Job
	for r := range js {
		js[r], err = Join(context.Background(), Config{Rank: r, Size: 2, Root: "unix:" + ln.Addr().String(), Token: testToken})
		require.NoError(b, err)
		defer js[r].Close()
	}
	js[1].NotifyReceived(func(int, string, []byte) {})
	val := make([]byte, 60)
	for b.Loop() {
		require.NoError(b, js[0].Send(context.Background(), 1, "ep", val))
	}
}
