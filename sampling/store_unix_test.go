//go:build unix

package sampling

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/fabric/sim"
)

// A pipe without a writer, under the profile's name, does not hang.
func TestStoreDoesNotWaitForAPipe(t *testing.T) {
	s := &Store{Dir: t.TempDir()}
	require.NoError(t, unix.Mkfifo(s.Path(someProfile().Key), 0o600))
	_, err := s.Load(someProfile().Key, sim.CapsLike("sim"))
	require.ErrorIs(t, err, ErrProfile)
}
