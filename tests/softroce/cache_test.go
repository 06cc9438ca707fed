//go:build linux

package main

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

func testCache(t *testing.T) *cache {
	t.Helper()
	t.Setenv("RMA_SOFTROCE_CACHE", t.TempDir())
	c, err := openCache()
	require.NoError(t, err)
	return c
}

func TestKey(t *testing.T) {
	t.Parallel()
	base := key("uml", "6.12.1-1~deb12u1", "ab", "c")
	require.Regexp(t, `^uml-6\.12\.1-1_deb12u1-[0-9a-f]{12}$`, base)
	require.Equal(t, base, key("uml", "6.12.1-1~deb12u1", "ab", "c"))
	for _, other := range []string{
		key("uml", "6.12.1-1~deb12u1", "a", "bc"),
		key("uml", "6.12.1-1~deb12u1", "abc"),
		key("uml", "6.12.1-1+deb12u1", "ab", "c"), // the same text when joined, but another key
		key("qemu", "6.12.1-1~deb12u1", "ab", "c"),
	} {
		require.NotEqual(t, base, other)
	}
}

func TestCacheBuildsOnce(t *testing.T) {
	c := testCache(t)
	var builds atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			dir, err := c.get("k-1", func(dir string) error {
				builds.Add(1)
				return os.WriteFile(filepath.Join(dir, "f"), []byte("whole"), 0o644)
			})
			if err != nil {
				t.Error(err)
				return
			}
			if b, _ := os.ReadFile(filepath.Join(dir, "f")); string(b) != "whole" {
				t.Errorf("entry holds %q", b)
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 1, builds.Load())
}

func TestCacheKeepsNothingOfAFailedBuild(t *testing.T) {
	c := testCache(t)
	boom := errors.New("boom")
	_, err := c.get("k-1", func(dir string) error {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "half"), nil, 0o644))
		return boom
	})
	require.ErrorIs(t, err, boom)
	// and those of a killed builder
	dead := filepath.Join(c.dir, "building-123")
	require.NoError(t, os.MkdirAll(filepath.Join(dead, "x"), 0o755))
	dir, err := c.get("k-1", func(dir string) error {
		found, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Empty(t, found)
		return nil
	})
	require.NoError(t, err)
	require.DirExists(t, dir)
	require.NoDirExists(t, dead)
	left, err := filepath.Glob(filepath.Join(c.dir, "building-*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestCleanRemovesOnlyItsOwn(t *testing.T) {
	c := testCache(t)
	mine := filepath.Join(c.dir, "my notes")
	require.NoError(t, os.WriteFile(mine, nil, 0o644))
	_, err := c.get("qemu-1-abc", func(string) error { return nil })
	require.NoError(t, err)
	require.NoError(t, cmdClean())
	left, err := os.ReadDir(c.dir)
	require.NoError(t, err)
	require.Len(t, left, 1)
	require.FileExists(t, mine)
}
