package testutil

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/offheap"
)

func TestMain(m *testing.M) { Main(m) }

var echo = NewChild("echo", func(args []string, in *bufio.Reader, out io.Writer) error {
	for _, a := range args {
		fmt.Fprintln(out, a)
	}
	for {
		s, err := in.ReadString('\n')
		if err != nil {
			return nil
		}
		if s == "fail\n" {
			return errors.New("told to fail")
		}
		fmt.Fprint(out, "<", s)
	}
})

func TestChild(t *testing.T) {
	NoLeaks(t)
	p := echo.Start(t, "a", "b")
	require.Equal(t, "a", p.Line(t, 10*time.Second))
	require.Equal(t, "b", p.Line(t, 10*time.Second))
	fmt.Fprintln(p.In, "hello")
	require.Equal(t, "<hello", p.Line(t, 10*time.Second))
	require.NotEqual(t, os.Getpid(), p.Pid())
	require.ErrorIs(t, p.Wait(time.Millisecond), ErrStillRunning)
	require.NoError(t, p.In.Close())
	require.NoError(t, p.Wait(10*time.Second))

	p = echo.Start(t)
	fmt.Fprintln(p.In, "fail")
	var ee *exec.ExitError
	require.ErrorAs(t, p.Wait(10*time.Second), &ee)
	require.Equal(t, 1, ee.ExitCode())

	p = echo.Start(t)
	p.Kill()
	require.ErrorAs(t, p.Wait(10*time.Second), &ee)
	require.Equal(t, -1, ee.ExitCode())

	// A child whose parent ends without notice ends by itself.
	p = echo.Start(t)
	require.NoError(t, p.lifeline.Close())
	require.ErrorAs(t, p.Wait(10*time.Second), &ee)
	require.Equal(t, 3, ee.ExitCode())
}

// A binary that is started as a program it is not does not run the tests again.
func TestNoProgramRunsTheTests(t *testing.T) {
	exe, err := os.Executable()
	require.NoError(t, err)
	out, err := exec.CommandContext(t.Context(), exe, "no-such-rank").CombinedOutput()
	var ee *exec.ExitError
	require.ErrorAs(t, err, &ee, "%s", out)
	require.Equal(t, 2, ee.ExitCode(), "%s", out)
	require.Contains(t, string(out), `unknown command "no-such-rank"`)
}

func TestPayloadShowsWhereItCameFrom(t *testing.T) {
	whole := Payload(5000, 7, 0)
	for off := range 40 {
		for n := range 70 {
			b := Payload(n, 7, uint64(off))
			require.Equal(t, whole[off:off+n], b)
			require.NoError(t, Verify(b, 7, uint64(off)))
		}
	}
	require.Equal(t, whole[11], PayloadByte(7, 11))
	require.Error(t, Verify(whole, 8, 0), "other seed")
	require.ErrorContains(t, Verify(whole[1:], 7, 0), "offset 1 (+1)")
	require.ErrorContains(t, Verify(whole[:100], 7, 3), "offset 0 (-3)")
	b := Payload(100, 7, 5)
	b[37] ^= 1
	err := Verify(b, 7, 5)
	require.ErrorContains(t, err, "byte 37 of 100 (absolute offset 42)")
	require.ErrorContains(t, err, "1 bytes differ")
	clear(b[60:])
	b[37] ^= 1
	require.ErrorContains(t, Verify(b, 7, 5), "all zero from there")
	require.Zero(t, testing.AllocsPerRun(10, func() { Fill(b, 1, 3); _ = Verify(b, 1, 3) }))
}

func TestGuard(t *testing.T) {
	t.Parallel()
	mem := make([]byte, 64)
	g := Guard(mem, 8, 16)
	require.Len(t, g.Buf, 16)
	Fill(g.Buf, 1, 0)
	require.NoError(t, g.Check())
	for _, i := range []int{0, 7, 24, 63} {
		mem[i]++
		require.Error(t, g.Check(), "byte %d", i)
		mem[i]--
	}
	require.NoError(t, g.Check())
	require.NoError(t, Guard(mem, 0, 64).Check())
}

// recorder is a testing.TB that records failures instead of failing.
type recorder struct {
	testing.TB
	errs     []string
	skipped  bool
	cleanups []func()
}

func (r *recorder) Helper()          {}
func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Error(a ...any)   { r.errs = append(r.errs, fmt.Sprint(a...)) }
func (r *recorder) Fatalf(f string, a ...any) {
	r.errs = append(r.errs, fmt.Sprintf(f, a...))
	panic(r)
}
func (r *recorder) Skipf(string, ...any) { r.skipped = true; panic(r) }

func record(f func(tb testing.TB)) *recorder {
	r := &recorder{}
	func() {
		defer func() {
			if p := recover(); p != nil && p != any(r) {
				panic(p)
			}
		}()
		f(r)
	}()
	for i := len(r.cleanups) - 1; i >= 0; i-- {
		r.cleanups[i]()
	}
	return r
}

func TestNoLeaksFindsLeaks(t *testing.T) {
	defer func(d time.Duration) { leakPatience = d }(leakPatience)
	leakPatience = 50 * time.Millisecond
	stop := make(chan struct{})
	var f *os.File
	var mem []byte
	for what, leak := range map[string]func(){
		"descriptors, ":                 func() { f, _ = os.Open("/dev/null") },
		"bytes of scratch off the heap": func() { mem, _ = offheap.Alloc(1, offheap.Scratch) },
		"goroutine":                     func() { go func() { <-stop }() },
	} {
		r := record(func(tb testing.TB) { NoLeaks(tb); leak() })
		require.Len(t, r.errs, 1, what)
		require.Contains(t, r.errs[0], what)
	}
	require.NoError(t, f.Close())
	require.NoError(t, offheap.Free(mem, offheap.Scratch))
	close(stop)
	require.Empty(t, record(func(tb testing.TB) { NoLeaks(tb) }).errs)
}

func TestWaitsEnd(t *testing.T) {
	n := 0
	require.Empty(t, record(func(tb testing.TB) {
		Eventually(tb, time.Minute, func() bool { n++; return n == 1000 }, "x")
	}).errs)
	r := record(func(tb testing.TB) { Eventually(tb, time.Millisecond, func() bool { return false }, "thing %d", 7) })
	require.Equal(t, []string{"not within 1ms: thing 7"}, r.errs)
	block := make(chan struct{})
	r = record(func(tb testing.TB) { Within(tb, time.Millisecond, "it", func() { <-block }) })
	require.Equal(t, []string{"it: not done within 1ms"}, r.errs)
	close(block)
	<-Context(t, time.Millisecond).Done()
}

func TestRequireRDMA(t *testing.T) {
	t.Setenv("RMA_REQUIRE_RDMA", "")
	r := record(func(tb testing.TB) { NoRDMA(tb, "no %s", "x") })
	require.True(t, r.skipped)
	require.Empty(t, r.errs)
	t.Setenv("RMA_REQUIRE_RDMA", "1")
	r = record(func(tb testing.TB) { NoRDMA(tb, "no %s", "x") })
	require.False(t, r.skipped)
	require.Equal(t, []string{"RMA_REQUIRE_RDMA=1, but no x"}, r.errs)
}

func TestScratchAndWords(t *testing.T) {
	NoLeaks(t)
	b := Scratch(t, 16)
	Store64(b[8:], 0x0102030405060708)
	require.Equal(t, byte(8), b[8])
	require.Equal(t, uint64(0x0102030405060708), Load64(b[8:]))
	require.Panics(t, func() { Load64(b[1:]) })
}

// What is allocated once does not count, what each run allocates does.
func TestAllocsPerRun(t *testing.T) {
	var kept []*[64]byte
	require.Zero(t, AllocsPerRun(10, func() {
		for len(kept) < 100 {
			kept = append(kept, new([64]byte))
		}
	}))
	require.EqualValues(t, 1, AllocsPerRun(10, func() { kept[0] = new([64]byte) }))
}
