package wireup

import (
	"context"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/testutil"
)

// raw is a client that speaks frames by hand.
func raw(t *testing.T, root string) net.Conn {
	network, addr, err := ParseRoot(root)
	require.NoError(t, err)
	c, err := net.Dial(network, addr)
	require.NoError(t, err)
	c.SetDeadline(time.Now().Add(testutil.Limit))
	t.Cleanup(func() { c.Close() })
	return c
}

// member is a rank that speaks frames by hand.
type member struct {
	net.Conn
	out *sealer
	in  *opener
}

// admitted is a connection that has joined as the rank.
func admitted(t *testing.T, root string, rank, size uint32) *member {
	return enter(t, raw(t, root), rank, size)
}

// unbuffered is a member of whom nothing is taken before it reads.
func unbuffered(t *testing.T, s *Server, rank, size uint32) *member {
	here, there := net.Pipe()
	s.serveConn(there, there)
	t.Cleanup(func() { here.Close() })
	return enter(t, here, rank, size)
}

func enter(t *testing.T, c net.Conn, rank, size uint32) *member {
	hello, err := readFrame(c, maxHandshake)
	require.NoError(t, err)
	h := handshake{token: testToken, server: hello.nonce, rank: rank, size: size}
	m := message{typ: msgJoin, version: Version, rank: rank, size: size, mac: h.joinMAC()}
	_, err = c.Write(m.append(nil))
	require.NoError(t, err)
	w, err := readFrame(c, maxHandshake)
	require.NoError(t, err)
	require.Equal(t, msgWelcome, w.typ)
	require.Equal(t, h.welcomeMAC(), w.mac)
	fromRank, fromServer, err := h.keys()
	require.NoError(t, err)
	return &member{c, &sealer{to: c, aead: fromRank}, &opener{from: c, aead: fromServer}}
}

// say sends frames, or what should be some.
func (m *member) say(b []byte) error {
	if _, err := m.out.Write(b); err != nil {
		return err
	}
	return m.out.Flush()
}

// hear reads the server's next frame.
func (m *member) hear(t *testing.T) message {
	t.Helper()
	x, err := readFrame(m.in, maxToRank)
	require.NoError(t, err)
	return x
}

func ended(t *testing.T, c net.Conn) {
	t.Helper()
	_, err := io.Copy(io.Discard, c)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "server keeps the connection")
}

func TestHostileHandshake(t *testing.T) {
	t.Parallel()
	_, root := serve(t, "unix", 2)
	j := join(t, root, 0, 2)
	join := message{typ: msgJoin, version: Version, rank: 1, size: 2}
	other := message{typ: msgJoin, version: Version + 1}
	for name, b := range map[string][]byte{
		"http":          []byte("GET / HTTP/1.1\r\n\r\n"),
		"huge length":   {0xff, 0xff, 0xff, 0xff, 1},
		"zero length":   {0, 0, 0, 0},
		"no mac":        join.append(nil),
		"not a join":    (&message{typ: msgPut, key: "k"}).append(nil),
		"wrong version": other.append(nil),
		"early end":     join.append(nil)[:20],
	} {
		c := raw(t, root)
		_, err := readFrame(c, maxHandshake)
		require.NoError(t, err, name)
		c.Write(b)
		if name == "early end" {
			c.Close()
			continue
		}
		if name == "wrong version" {
			m, err := readFrame(c, maxHandshake)
			require.NoError(t, err)
			require.Equal(t, codeVersion, m.code)
			require.Equal(t, uint16(Version), m.version)
		}
		ended(t, c)
	}
	require.Empty(t, j.GoneReason(1))
	admitted(t, root, 1, 2)
}

// A replayed join is worth nothing: the server's nonce differs.
func TestReplayIsRefused(t *testing.T) {
	t.Parallel()
	_, root := serve(t, "unix", 2)
	c1 := raw(t, root)
	hello, err := readFrame(c1, maxHandshake)
	require.NoError(t, err)
	h := handshake{token: testToken, server: hello.nonce, rank: 1, size: 2}
	m := message{typ: msgJoin, version: Version, rank: 1, size: 2, mac: h.joinMAC()}
	c2 := raw(t, root)
	_, err = readFrame(c2, maxHandshake)
	require.NoError(t, err)
	c2.Write(m.append(nil))
	r, err := readFrame(c2, maxHandshake)
	require.NoError(t, err)
	require.Equal(t, msgRefuse, r.typ)
	require.Equal(t, codeToken, r.code)
}

// Connections that say nothing cannot lock ranks out.
func TestFloodOfSilentConnections(t *testing.T) {
	t.Parallel()
	srv, root := serve(t, "unix", 1)
	var first net.Conn
	for i := range maxUnproved + 20 {
		c := raw(t, root)
		if i == 0 {
			first = c
		}
		_, err := readFrame(c, maxHandshake) // it has been accepted
		require.NoError(t, err)
	}
	ended(t, first)
	j := join(t, root, 0, 1)
	require.NoError(t, j.Barrier(t.Context(), "b"))
	srv.mu.Lock()
	n := len(srv.unproved)
	srv.mu.Unlock()
	require.LessOrEqual(t, n, maxUnproved)
	start := time.Now()
	srv.Close()
	require.Less(t, time.Since(start), testutil.Limit)
}

// A rank that has proved who it is stays, however many others connect at that moment.
func TestFloodWhileRanksJoin(t *testing.T) {
	t.Parallel()
	const n = 64
	_, root := serve(t, "unix", n)
	network, address, err := ParseRoot(root)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	var tasks sync.WaitGroup
	defer tasks.Wait()
	defer stop()
	for range 4 {
		tasks.Go(func() {
			var held [maxUnproved]net.Conn
			for i := range 20_000 { // bounded, whatever happens
				c, err := net.Dial(network, address)
				if err != nil {
					break
				}
				last := &held[i%len(held)]
				if *last != nil {
					(*last).Close()
				}
				if *last = c; ctx.Err() != nil {
					break
				}
			}
			for _, c := range held {
				if c != nil {
					c.Close()
				}
			}
		})
	}
	for r := range n {
		j := join(t, root, r, n)
		defer j.Close()
		defer func() { require.NoError(t, j.Err(), "rank %d", r) }()
	}
}

func TestHostileMember(t *testing.T) {
	t.Parallel()
	_, root := serve(t, "unix", 6)
	good := join(t, root, 0, 6)
	rank := uint32(0)
	for name, b := range map[string][]byte{
		"server's frame": (&message{typ: msgValue}).append(nil),
		"too long":       le.AppendUint32(nil, maxToServer+1),
		"malformed":      {3, 0, 0, 0, byte(msgPut), 1, 1},
		"same id twice": append((&message{typ: msgGet, id: 1, rank: 0, key: "a"}).append(nil),
			(&message{typ: msgGet, id: 1, rank: 0, key: "b"}).append(nil)...),
	} {
		rank++
		c := admitted(t, root, rank, 6)
		require.NoError(t, c.say(b), name)
		ended(t, c)
		<-good.Gone(int(rank))
	}
	// Too many open requests.
	c := admitted(t, root, 5, 6)
	var b []byte
	for id := range uint32(maxPending(6) + 1) {
		m := message{typ: msgGet, id: id, rank: 0, key: "never"}
		b = m.append(b)
	}
	require.NoError(t, c.say(b))
	ended(t, c)
	<-good.Gone(5)
	require.NoError(t, good.Put(t.Context(), "k", nil), "the others go on")
}

// A member that asks and never reads its answers is not asked for more: what is
// kept for it is bounded, and nobody waits for it meanwhile.
func TestSlowReaderIsHeldBack(t *testing.T) {
	t.Parallel()
	srv, root := serve(t, "unix", 2)
	good := join(t, root, 0, 2)
	require.NoError(t, good.Put(t.Context(), "k", make([]byte, MaxValue)))
	c := admitted(t, root, 1, 2)
	asked, full := 0, make(chan struct{})
	go func() {
		defer close(full)
		for ; ; asked++ {
			m := message{typ: msgGet, id: uint32(asked), rank: 0, key: "k"}
			c.SetWriteDeadline(time.Now().Add(time.Second)) // deadline: the server has stopped reading
			if c.say(m.append(nil)) != nil {
				return // the server reads no more
			}
		}
	}()
	<-full
	testutil.Holding(&srv.mu, func() {
		x := srv.st.clients[1]
		frames := 0
		for _, f := range x.queue {
			frames += len(f.head)
		}
		require.Less(t, x.owed, maxOwed+2*MaxValue)
		require.Less(t, frames, 1<<10, "values are not copied for those who wait")
	})
	_, err := good.Get(t.Context(), 0, "k")
	require.NoError(t, err)
	require.Empty(t, good.GoneReason(1))
	// It may still catch up.
	for range asked {
		require.Len(t, c.hear(t).val, MaxValue)
	}
}

// Values are not copied for those who wait for them.
func TestWaitersShareAValue(t *testing.T) {
	t.Parallel()
	s := newState(2)
	srv := &Server{st: s}
	a, b := newClient(srv, nil, 0), newClient(srv, nil, 1)
	for id := range uint32(maxPending(2)) {
		require.NoError(t, s.handle(b, message{typ: msgGet, id: id, rank: 0, key: "k"}))
	}
	require.NoError(t, s.handle(a, message{typ: msgPut, key: "k", val: make([]byte, MaxValue)}))
	require.Len(t, b.queue, maxPending(2))
	heads := 0
	for _, f := range b.queue {
		heads += cap(f.head)
		require.Same(t, &b.queue[0].body[0], &f.body[0])
	}
	require.Less(t, heads, 32*maxPending(2))
}

func TestEnvironment(t *testing.T) {
	env := func(kv ...string) func(string) string {
		m := map[string]string{}
		for i := 0; i < len(kv); i += 2 {
			m[kv[i]] = kv[i+1]
		}
		return func(k string) string { return m[k] }
	}
	c, err := From(env())
	require.NoError(t, err)
	require.Equal(t, Config{Size: 1}, c)
	want := Config{Rank: 3, Size: 4, Root: "tcp:h:1", Token: []byte{1, 0xab}, Job: "j", LocalRank: 2, Timeout: 9 * time.Second}
	m := map[string]string{}
	for _, kv := range want.Environ() {
		for i := range kv {
			if kv[i] == '=' {
				m[kv[:i]] = kv[i+1:]
				break
			}
		}
	}
	c, err = From(func(k string) string { return m[k] })
	require.NoError(t, err)
	require.Equal(t, want, c)
	for _, bad := range [][]string{
		{EnvRank, "0"},
		{EnvSize, "2"},
		{EnvRoot, "unix:/x"},
		{EnvRank, "2", EnvSize, "2", EnvRoot, "unix:/x"},
		{EnvRank, "-1", EnvSize, "2", EnvRoot, "unix:/x"},
		{EnvRank, "x", EnvSize, "2", EnvRoot, "unix:/x"},
		{EnvRank, "0", EnvSize, "99999999", EnvRoot, "unix:/x"},
		{EnvRank, "0", EnvSize, "2"},
		{EnvRank, "0", EnvSize, "2", EnvRoot, "nowhere"},
		{EnvRank, "0", EnvSize, "2", EnvRoot, "unix:"},
		{EnvRank, "0", EnvSize, "2", EnvRoot, "unix:/x", EnvToken, "secret!"},
		{EnvRank, "0", EnvSize, "2", EnvRoot, "unix:/x", EnvLocalRank, "-2"},
		{EnvTimeout, "soon"},
	} {
		_, err := From(env(bad...))
		require.ErrorIs(t, err, ErrEnvironment, "%v", bad)
		require.NotContains(t, err.Error(), "secret!")
	}
	_, err = From(env(EnvRoot, "unix:/x"))
	require.ErrorContains(t, err, EnvSize+" is not set")
	_, err = From(env(EnvSize, "1"))
	require.ErrorContains(t, err, EnvRank+" is not set")
}
