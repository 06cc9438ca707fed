package main

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

func TestExchangeBothSides(t *testing.T) {
	t.Parallel()
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	ctx := testutil.Context(t, 10*time.Second)
	other := someDest
	other.QPN = 7
	events := make(chan string, 2)
	errs := make(chan error, 1)
	go func() {
		errs <- exchange(ctx, a, true, someDest, func(d dest) error {
			if d != other {
				return errors.New("server got something else")
			}
			events <- "server ready"
			return nil
		})
	}()
	require.NoError(t, exchange(ctx, b, false, other, func(d dest) error {
		require.Equal(t, someDest, d)
		events <- "client ready"
		return nil
	}))
	require.NoError(t, <-errs)
	require.Equal(t, "server ready", <-events, "the client may send as soon as it is ready: the server must be before")
	require.Equal(t, "client ready", <-events)
}

func TestExchangeWithABadPeer(t *testing.T) {
	t.Parallel()
	for name, say := range map[string]string{
		"noise":     "GET / HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\nUser-Agent: x\r\n",
		"truncated": someWire[:20],
		"nothing":   "",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, b := net.Pipe()
			defer a.Close()
			go func() {
				_, _ = b.Write([]byte(say))
				_ = b.Close()
			}()
			err := exchange(testutil.Context(t, 10*time.Second), a, true, someDest, func(dest) error {
				t.Error("connected to it")
				return nil
			})
			require.Error(t, err)
		})
	}
}

func TestExchangeEndsWithItsContext(t *testing.T) {
	t.Parallel()
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	ctx, cancel := context.WithCancelCause(context.Background())
	reason := errors.New("enough")
	go cancel(reason)
	err := exchange(ctx, a, true, someDest, func(dest) error { return nil })
	require.ErrorIs(t, err, reason)
}

func TestDialGivesUpWithAReason(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port := l.Addr().(*net.TCPAddr).Port
	require.NoError(t, l.Close())
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond) // deadline: it has to end
	defer cancel()
	_, err = dial(ctx, "127.0.0.1", port)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "is the server running")
}

func TestCheckSeesEveryWrongByte(t *testing.T) {
	t.Parallel()
	buf := make([]byte, 2*pageSize+3)
	fill(buf, 5)
	require.NoError(t, checkEcho(buf, 5))
	require.NoError(t, checkClient(buf, 5))
	require.Error(t, checkEcho(buf, 6), "another message")
	for off := range buf {
		buf[off]++
		require.Error(t, checkEcho(buf, 5), "byte %d", off)
		require.Error(t, checkClient(buf, 5), "byte %d", off)
		buf[off]--
	}
	for off := range buf {
		if buf[off] = filler; off%pageSize == 0 {
			buf[off] = 0
		}
	}
	require.NoError(t, checkClient(buf, 9), "the other implementation's client")
	buf[pageSize] = 1
	require.Error(t, checkClient(buf, 9))
}

func TestUsageErrors(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"-s", "0"}, {"-n", "0"}, {"-m", "1000"}, {"-r", "0"}, {"-p", "70000"}, {"-l", "16"}, {"--nonsense"}, {"-s", "x"},
	} {
		c := command()
		c.SetArgs(args)
		require.ErrorIs(t, c.Execute(), errUsage, "%v", args)
	}
}
