package rma

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/testutil"
	"github.com/seed33544411/rma/logp"
)

// text is a log to which any goroutine may write.
type text struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (t *text) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.b.Write(b)
}

func (t *text) count(s string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Count(t.b.String(), s)
}

// A link that differs from its measurement is reported once, and its profile is retired, so
// that the next start measures again.
func TestDriftIsReported(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var log text
	es := openWith(t, 2, "shm", func(c *Config) {
		c.Profiles = dir
		c.Logger = slog.New(slog.NewTextHandler(&log, nil))
	})
	e, p := es[0], es[0].Peer(1)
	store, key := e.bringup.Profile(p.link, e.bringup.Path(1).Of)
	require.NoError(t, os.WriteFile(store.Path(key), []byte("saved"), 0o600))
	for range 5 {
		e.prog.Do(func() { p.drifted(logp.ModeSet(0).With(logp.Gather)) })
	}
	// The goroutine that reports is the engine's; closing waits for it.
	require.NoError(t, errors.Join(es[0].Close(), es[1].Close()))
	require.Equal(t, 1, log.count("rma: link differs from its measurement"))
	require.Equal(t, 1, log.count("gather 1.0 times"))
	_, err := os.Stat(store.Path(key))
	require.ErrorIs(t, err, os.ErrNotExist)
	b, err := os.ReadFile(store.Path(key) + ".drifted")
	require.NoError(t, err)
	require.Equal(t, "saved", string(b))
	e.prog.Do(func() { p.drifted(logp.AllModes) }) // after Close it starts nothing
}

// Engines that measure also learn, unless this is disabled.
func TestEnginesLearn(t *testing.T) {
	t.Parallel()
	for sampled, c := range map[string]struct {
		learn int
		timed bool
	}{"off": {1, false}, "cached": {1, true}, "force": {-1, false}} {
		t.Run(sampled, func(t *testing.T) {
			t.Parallel()
			ctx := testutil.Context(t, 60*time.Second)
			dir := t.TempDir()
			es := openWith(t, 2, "shm", func(cfg *Config) {
				cfg.Sampling, cfg.Learn, cfg.Profiles, cfg.SamplingBudget = Sampling(sampled), c.learn, dir, 2*time.Millisecond
			})
			a, b := es[0].Peer(1), es[1].Peer(0)
			buf := make([]byte, 8)
			// One at a time, so that the link is idle before each. The first 20 ms
			// are not timed.
			for i := 0; i < 200 || c.timed && a.Stats().Messages.Timed == 0; i++ {
				req := a.Send([]byte("12345678"))
				_, err := b.Recv(buf).Wait(ctx)
				require.NoError(t, err)
				require.NoError(t, req.Wait(ctx))
			}
			if !c.timed {
				require.Zero(t, a.Stats().Messages.Timed)
			}
		})
	}
}
