//go:build unix

package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/examples/nas/internal/nastest"
	"github.com/seed33544411/rma/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

func TestClassS(t *testing.T) { nastest.Verify(t, kernel, 1, 2, 4, 8) }

func TestRanksArePowersOfTwo(t *testing.T) {
	_, err := nastest.Run(t, kernel, 3, "shm")
	require.ErrorContains(t, err, "3 ranks: want a power of two, at most 64")
}
