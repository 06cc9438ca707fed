package owned_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/owned"
)

// calls runs f in a goroutine of its own and returns the value of its panic.
func calls(f func()) (failure any) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { failure = recover() }()
		f()
	}()
	<-done
	return failure
}

func TestOnlyTheOwnerPasses(t *testing.T) {
	var h owned.Holder
	h.Take()
	h.Assert()
	other := calls(h.Assert)
	h.Drop()
	nobody := calls(h.Assert)
	var none *owned.Holder
	require.Nil(t, calls(none.Assert))
	if !owned.On {
		require.Nil(t, other)
		require.Nil(t, nobody)
		return
	}
	require.Contains(t, other, "another goroutine took over at\n\tgithub.com/seed33544411/rma/internal/owned_test.TestOnlyTheOwnerPasses")
	require.Contains(t, nobody, "there is no owner")
	require.Nil(t, calls(func() { h.Take(); h.Drop() }), "the next owner is another goroutine")
}

// In a release, an assertion costs nothing; with the tag it does not allocate either, so
// that the tests that count allocations pass.
func TestNoAllocation(t *testing.T) {
	var h owned.Holder
	require.Zero(t, testing.AllocsPerRun(100, func() { h.Take(); h.Assert(); h.Drop() }))
}
