package wireup

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/internal/testutil"
)

// as runs f as another user, as far as sockets are concerned.
func as(t *testing.T, uid int, f func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		_, _, e := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), uintptr(uid), ^uintptr(0))
		if e == 0 {
			f()
			done <- nil
			return
		}
		done <- e
	}()
	require.NoError(t, <-done)
}

// At a Unix socket that any user may open, the user counts where there is no
// secret: of a rank, and of a server.
func TestOtherUsers(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root can be another user")
	}
	const nobody = 65534
	for i, token := range [][]byte{nil, []byte("short"), testToken} {
		name := fmt.Sprintf("@%s/%d", t.TempDir(), i) // nobody else's, nor one that was just closed
		ln, err := net.Listen("unix", name)
		require.NoError(t, err)
		srv, err := Serve(t.Context(), ln, ServerConfig{Size: 2, Token: token})
		require.NoError(t, err)
		c := Config{Rank: 1, Size: 2, Root: "unix:" + name, Token: token, Timeout: testutil.Limit}
		as(t, nobody, func() {
			var j *Job
			if j, err = Join(t.Context(), c); err == nil {
				err = j.Close()
			}
		})
		if len(token) >= MinToken {
			require.NoError(t, err)
			require.NoError(t, srv.Close())
			continue
		}
		require.ErrorIs(t, err, ErrUser)
		c.Rank = 0
		j, err := Join(t.Context(), c)
		require.NoError(t, err, "its own user is admitted")
		require.NoError(t, j.Close())
		require.NoError(t, srv.Close())

		c.Root += "/theirs"
		as(t, nobody, func() { ln, err = net.Listen("unix", name+"/theirs") })
		require.NoError(t, err)
		_, err = Join(t.Context(), c)
		require.ErrorIs(t, err, ErrUser)
		require.NoError(t, ln.Close())
	}
}
