package play

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// plain is a transport of bare TCP, for tests.
type plain struct{ lose bool }

func (plain) Name() string      { return "plain" }
func (plain) Module() string    { return "example.org/plain" }
func (plain) Nets() []string    { return []string{"tcp", "unix"} }
func (plain) How(*Plan) string  { return "as it is" }
func (plain) Pins(p *Plan) bool { return true }

func (x plain) Listen(ctx context.Context, p *Plan) (Listener, error) {
	l, err := ListenLocal(ctx, p.Net)
	return plainListener{l, ctx, x}, err
}

func (x plain) Dial(ctx context.Context, p *Plan, addr string) (Conn, error) {
	c, err := net.Dial(p.Net, addr)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { c.Close() })
	return plainConn{c, x.lose}, nil
}

type plainListener struct {
	net.Listener
	ctx context.Context
	x   plain
}

func (l plainListener) Addr() string { return l.Listener.Addr().String() }

func (l plainListener) Accept() (Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		context.AfterFunc(l.ctx, func() { c.Close() })
	}
	return plainConn{c, l.x.lose}, err
}

// plainConn loses a message, if it is told to, by counting one that never came.
type plainConn struct {
	net.Conn
	lose bool
}

func (c plainConn) Send(msg []byte) error {
	if c.lose && len(msg) == answerSize && msg[0] != 0 {
		msg = append([]byte{msg[0] - 1}, msg[1:]...)
	}
	_, err := c.Write(msg)
	return err
}
func (plainConn) Flush() error { return nil }
func (c plainConn) Recv(into []byte) ([]byte, error) {
	_, err := io.ReadFull(c.Conn, into)
	return into, err
}

func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func nothing(*Plan) error { return nil }

// serve starts a server; what it returned comes out of the channel.
func serve(t *testing.T, x Transport, prepare func(*Plan) error) (addr string, end chan error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	end = make(chan error, 1)
	go func() { end <- Serve(bounded(t), x, l, prepare) }()
	return l.Addr().String(), end
}

func TestPlay(t *testing.T) {
	t.Parallel()
	for _, network := range (plain{}).Nets() {
		for _, test := range Tests {
			var seen Plan
			addr, end := serve(t, plain{}, func(p *Plan) error { seen = *p; return nil })
			p := Plan{Net: network, Test: test, Size: 20, Iters: 100, Batch: 7}
			r, err := Run(bounded(t), plain{}, &p, addr)
			require.NoError(t, err)
			require.NoError(t, <-end)
			require.Equal(t, p, seen)
			require.Equal(t, "plain as it is", r.Peer+" "+r.How)
			require.Equal(t, test == "lat", r.P50US > 0)
			require.Equal(t, test != "lat", r.Mmsgs > 0)
			var b bytes.Buffer
			require.NoError(t, r.Write(&b))
			var again Result
			require.NoError(t, json.Unmarshal(b.Bytes(), &again))
			require.Equal(t, r, again)
		}
	}
}

// The server's count is compared with the client's.
func TestLostMessagesAreTold(t *testing.T) {
	t.Parallel()
	addr, end := serve(t, plain{lose: true}, nothing)
	_, err := Run(bounded(t), plain{}, &Plan{Net: "tcp", Test: "rate", Size: 20, Iters: 100, Batch: 1}, addr)
	require.ErrorIs(t, err, ErrCount)
	require.Error(t, <-end)
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	good := Plan{Net: "tcp", Test: "lat", Size: 8, Iters: 10, Batch: 1}
	for _, spoil := range []func(*Plan){
		func(p *Plan) { p.Net = "pigeon" },
		func(p *Plan) { p.Test = "speed" },
		func(p *Plan) { p.Size = 0 },
		func(p *Plan) { p.Size = MaxSize + 1 },
		func(p *Plan) { p.Iters = 0 },
		func(p *Plan) { p.Iters = maxIters + 1 },
		func(p *Plan) { p.Batch = 0 },
		func(p *Plan) { p.Batch = maxBatch + 1 },
	} {
		p := good
		spoil(&p)
		_, err := Run(bounded(t), plain{}, &p, "127.0.0.1:1")
		require.ErrorIs(t, err, ErrPlan)

		addr, end := serve(t, plain{}, nothing) // which trusts nobody
		b, err := json.Marshal(p)
		require.NoError(t, err)
		require.Contains(t, say(t, addr, string(b)+"\n"), ErrPlan.Error())
		require.ErrorIs(t, <-end, ErrPlan)
	}
	for _, line := range []string{"", "\n", "{\n", `{"size":"x"}` + "\n", strings.Repeat("x", 2*maxLine)} {
		addr, end := serve(t, plain{}, nothing)
		require.Empty(t, say(t, addr, line))
		require.ErrorIs(t, <-end, ErrControl)
	}
	mine := errors.New("no such processor")
	addr, end := serve(t, plain{}, func(*Plan) error { return mine })
	_, err := Run(bounded(t), plain{}, &good, addr)
	require.ErrorContains(t, err, mine.Error())
	require.ErrorIs(t, <-end, mine)
}

// say sends a line to a server, and no more, and returns its answer.
func say(t *testing.T, addr, line string) string {
	c, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer c.Close()
	_, _ = io.WriteString(c, line) // it may have heard enough before the end
	_ = c.(*net.TCPConn).CloseWrite()
	answer, _ := bufio.NewReader(c).ReadString('\n')
	return answer
}

// A server that dies ends its client, one that waits for ever ends with its context.
func TestEndsWithTheOtherSide(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	data, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer data.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		_ = (&control{Conn: c}).tell(welcome{Addr: data.Addr().String()})
		if d, err := data.Accept(); err == nil {
			_, _ = io.ReadFull(d, make([]byte, 8)) // the first message; and then it dies
		}
		c.Close()
	}()
	_, err = Run(bounded(t), plain{}, &Plan{Net: "tcp", Test: "lat", Size: 8, Iters: 10, Batch: 1}, l.Addr().String())
	require.ErrorIs(t, err, ErrGone)

	for _, line := range []string{"", `{"net":"tcp","test":"lat","size":8,"iters":10,"batch":1}` + "\n"} {
		ctx, cancel := context.WithCancelCause(bounded(t))
		l, err = net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		end := make(chan error, 1)
		go func() { end <- Serve(ctx, plain{}, l, nothing) }()
		if line != "" {
			c, err := net.Dial("tcp", l.Addr().String())
			require.NoError(t, err)
			defer c.Close()
			_, err = io.WriteString(c, line)
			require.NoError(t, err)
			_, err = c.Read(make([]byte, 1)) // it waits on the transport now
			require.NoError(t, err)
		}
		mine := errors.New("enough")
		cancel(mine)
		require.ErrorIs(t, <-end, mine)
	}
}

func TestMainSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"", exitUsage, "serve in one"},
		{"dance", exitUsage, "serve in one"},
		{"run --size x", exitUsage, "size"},
		{"run --port 70000", exitUsage, "serve in one"},
		{"run extra", exitUsage, "serve in one"},
		{"run --help", exitOK, "serve in one"},
		{"run --test speed", exitUsage, ErrPlan.Error()},
	} {
		var out, errs bytes.Buffer
		require.Equal(t, c.code, Main(plain{}, strings.Fields(c.args), &out, &errs), c.args)
		require.Empty(t, out.String())
		require.Contains(t, errs.String(), c.want, c.args)
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	require.Equal(t, "plain ("+runtime.Version()+")", version(plain{}))
	var out, errs bytes.Buffer
	require.Equal(t, exitOK, Main(plain{}, []string{"version"}, &out, &errs))
	require.Equal(t, version(plain{})+"\n", out.String())
}

func TestMedian(t *testing.T) {
	t.Parallel()
	require.Zero(t, median(nil))
	require.Equal(t, 2*time.Second, median([]time.Duration{3 * time.Second, time.Second, 2 * time.Second}))
	require.Equal(t, 3*time.Second, median([]time.Duration{4 * time.Second, 2 * time.Second}))
}
