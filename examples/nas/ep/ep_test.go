//go:build unix

package main

import (
	"testing"

	"github.com/seed33544411/rma/examples/nas/internal/nastest"
	"github.com/seed33544411/rma/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

func TestClassS(t *testing.T) { nastest.Verify(t, kernel, 1, 3, 4) }
