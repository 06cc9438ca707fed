package offheap

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// faults returns how many page faults f takes.
func faults(t *testing.T, f func()) int64 {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, after unix.Rusage
	require.NoError(t, unix.Getrusage(unix.RUSAGE_THREAD, &before))
	f()
	require.NoError(t, unix.Getrusage(unix.RUSAGE_THREAD, &after))
	return after.Minflt - before.Minflt
}

func TestPopulate(t *testing.T) {
	t.Parallel()
	const pages = 256
	for name, populate := range map[string]func([]byte){"as the system does": Populate, "as on old systems": func(b []byte) { access(whole(b)) }, "with accesses": Touch} {
		t.Run(name, func(t *testing.T) {
			b, err := Alloc(pages*PageSize, Scratch)
			require.NoError(t, err)
			defer func() { require.NoError(t, Free(b, Scratch)) }()
			part := b[PageSize/2 : len(b)-PageSize/2] // of all pages
			part[100] = 7
			populate(part)
			require.EqualValues(t, 7, part[100])
			require.Less(t, faults(t, func() {
				for i := 0; i < len(b); i += PageSize {
					b[i] = 1
				}
			}), int64(pages/8))
		})
	}
	Populate(nil)
	Touch(nil)
}
