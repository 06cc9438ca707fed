//go:build linux

package tcp

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/testutil"
)

func init() { childMain = connectAsStranger }

func connectAsStranger(spec string) error {
	var addr, say string
	var n int
	if _, err := fmt.Sscan(spec, &addr, &say, &n); err != nil {
		return err
	}
	for range n {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			return err
		}
		_ = c.(*net.TCPConn).SetLinger(0) // no ports in TIME_WAIT
		if say != "nothing" {
			_, _ = c.Write([]byte(strings.Repeat(say, helloSize/len(say)+1)))
			_, _ = c.Read(make([]byte, 1)) // is refused
		}
		c.Close()
	}
	return nil
}

// BenchmarkStranger measures the processor time of the process to which strangers connect, in
// user mode, in the kernel, and together: ns/op is the time of both processes.
func BenchmarkStranger(b *testing.B) {
	for _, say := range []string{"nothing", "GET"} {
		b.Run(say, func(b *testing.B) {
			door := newHost(b, Config{}, fabric.EndpointOptions{}, 4096)
			const least = 1000
			n := max(b.N, least)
			c := exec.Command(os.Args[0])
			c.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %d", floodEnv, door.l.where(), say, n))
			c.Stderr = os.Stderr
			before := spent(b)
			b.ResetTimer()
			require.NoError(b, c.Run())
			testutil.Eventually(b, testutil.Limit, func() bool {
				door.l.pending.mu.Lock()
				defer door.l.pending.mu.Unlock()
				return len(door.l.pending.conns) == 0
			}, "the end of all")
			b.StopTimer()
			after := spent(b)
			b.ReportMetric(float64(after[0]-before[0])/float64(n), "user-ns/stranger")
			b.ReportMetric(float64(after[1]-before[1])/float64(n), "kernel-ns/stranger")
		})
	}
}

// spent returns this process's processor time, in user mode and in the kernel.
func spent(tb testing.TB) [2]time.Duration {
	var u unix.Rusage
	require.NoError(tb, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return [2]time.Duration{time.Duration(u.Utime.Nano()), time.Duration(u.Stime.Nano())}
}
