package wireup

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/testutil"
)

func TestAdmission(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		network string
		a       admission
		ok      bool
	}{
		{"tcp", admission{}, false},
		{"tcp", admission{token: make([]byte, MinToken-1)}, false},
		{"tcp", admission{token: make([]byte, MinToken)}, true},
		{"tcp", admission{tls: &tls.Config{}}, true},
		{"tcp", admission{insecure: true}, true},
		{"unix", admission{}, true},
	} {
		err := c.a.check(c.network, "127.0.0.1:7117")
		if c.ok {
			require.NoError(t, err)
			continue
		}
		require.ErrorIs(t, err, ErrNoToken)
		require.ErrorIs(t, err, ErrEnvironment)
		require.ErrorContains(t, err, "openssl rand -hex")
	}
}

// Servers hold to it, whatever started them, and so do ranks, whatever server they
// are shown.
func TestNobodyMeetsWithoutASecret(t *testing.T) {
	t.Parallel()
	listen := func() net.Listener {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		return ln
	}
	ln := listen()
	_, err := Serve(t.Context(), ln, ServerConfig{Size: 2, Token: []byte("short")})
	require.ErrorIs(t, err, ErrNoToken)
	require.ErrorIs(t, ln.Close(), net.ErrClosed, "it is closed already")
	ln = listen()
	_, err = Join(t.Context(), Config{Size: 2, Listener: ln})
	require.ErrorIs(t, err, ErrNoToken)
	require.ErrorIs(t, ln.Close(), net.ErrClosed)
	for _, root := range []string{"localhost:1", "tcp:[::1]:1", "unix:/nowhere,h:1"} {
		_, err = Join(t.Context(), Config{Rank: 1, Size: 2, Root: root, TokenHint: "ask somebody"})
		require.ErrorIs(t, err, ErrNoToken, root)
		require.ErrorContains(t, err, "ask somebody")
	}
	s, err := Serve(t.Context(), listen(), ServerConfig{Size: 1, Insecure: true})
	require.NoError(t, err)
	defer s.Close()
	j, err := Join(t.Context(), Config{Root: s.Addr().String(), Insecure: true})
	require.NoError(t, err)
	require.NoError(t, j.Close())
}

// Who waits in vain learns who was turned away meanwhile.
func TestRefusalsAreToldToThoseWhoWait(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer // the server's mutex guards it
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	srv, err := Serve(t.Context(), ln, ServerConfig{Size: 2, Token: testToken, Log: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	defer srv.Close()
	root := ln.Addr().String()
	j := join(t, root, 0, 2)
	const guesses = 20
	for range guesses {
		_, err := Join(t.Context(), Config{Rank: 1, Size: 2, Root: root, Token: []byte("a guess of sixteen")})
		require.ErrorIs(t, err, ErrToken)
	}
	c := raw(t, "tcp:"+root)
	_, err = c.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		srv.mu.Lock()
		defer srv.mu.Unlock()
		return srv.st.refused["wrong token"] == guesses && srv.st.refused["not a rank"] == 1
	}, testutil.Limit, time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond) // deadline: it has to end
	defer cancel()
	require.ErrorContains(t, j.Barrier(ctx, "b"), "rank 1 of 2 has not joined; 21 connections were refused: wrong token (20), not a rank (1)")
	srv.Close()
	require.Equal(t, 5, strings.Count(log.String(), "wrong token"), "1, 2, 4, 8, 16: %s", log.String())
	require.Contains(t, log.String(), `why="wrong token" times=16`)
}

func TestRefusedText(t *testing.T) {
	t.Parallel()
	r := refused{}
	require.Empty(t, r.String())
	for _, err := range []error{
		fmt.Errorf("x: %w", ErrVersion), os.ErrDeadlineExceeded, ErrUser, os.ErrDeadlineExceeded, os.ErrInvalid,
	} {
		r.note(err)
	}
	require.Equal(t, "5 connections were refused: silent (2), another user's process (1), another version (1), broken connection (1)", r.String())
	r = refused{}
	_, n, tell := r.note(ErrToken)
	require.True(t, tell)
	require.Equal(t, 1, n)
	require.Equal(t, "1 connection was refused: wrong token (1)", r.String())
}

// A secret that others can read is none.
func TestTokenFileOfOthers(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(path, []byte(strings.Repeat("5a", MinToken)), 0o600))
	from := func() error {
		_, err := TokenFrom(func(k string) string { return map[string]string{EnvTokenFile: path}[k] })
		return err
	}
	for mode, ok := range map[os.FileMode]bool{0o600: true, 0o400: true, 0o700: true, 0o640: false, 0o604: false, 0o620: false} {
		require.NoError(t, os.Chmod(path, mode))
		if ok {
			require.NoError(t, from(), "%o", mode)
			continue
		}
		require.ErrorIs(t, from(), ErrTokenFile, "%o", mode)
		require.ErrorContains(t, from(), "chmod 600")
	}
	if os.Getuid() == 0 { // as a Secret mounted for a process that is not root's
		require.NoError(t, os.Chown(path, 65534, 65534))
		require.NoError(t, from())
	}
}
