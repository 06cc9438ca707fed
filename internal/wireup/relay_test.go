package wireup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/testutil"
)

// relay sits between a rank and the server: it passes on the handshake as it is,
// and then what change makes of the n-th piece of either direction. It sees
// everything.
type relay struct {
	ln     net.Listener
	to     string
	change func(toServer bool, n int, piece []byte) (out [][]byte, goOn bool)

	mu   sync.Mutex
	seen bytes.Buffer
	wg   sync.WaitGroup
}

func newRelay(t *testing.T, root string, change func(bool, int, []byte) ([][]byte, bool)) *relay {
	_, to, err := ParseRoot(root)
	require.NoError(t, err)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	r := &relay{ln: ln, to: to, change: change}
	r.wg.Go(func() {
		for {
			rank, err := ln.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", to)
			if err != nil {
				rank.Close()
				continue
			}
			r.wg.Go(func() { r.pass(rank, server, true, 1) })  // join
			r.wg.Go(func() { r.pass(server, rank, false, 2) }) // hello, welcome
		}
	})
	t.Cleanup(func() { ln.Close(); r.wg.Wait() })
	return r
}

func (r *relay) pass(from, to net.Conn, toServer bool, plain int) {
	defer from.Close()
	defer to.Close()
	for n := -plain; ; n++ {
		head := make([]byte, 4)
		if _, err := io.ReadFull(from, head); err != nil {
			return
		}
		piece := append(head, make([]byte, le.Uint32(head)&^(1<<31))...)
		if _, err := io.ReadFull(from, piece[4:]); err != nil {
			return
		}
		r.mu.Lock()
		r.seen.Write(piece)
		r.mu.Unlock()
		out, goOn := [][]byte{piece}, true
		if n >= 0 && r.change != nil {
			out, goOn = r.change(toServer, n, piece)
		}
		for _, b := range out {
			if _, err := to.Write(b); err != nil {
				return
			}
		}
		if !goOn {
			return
		}
	}
}

func (r *relay) captured() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return bytes.Clone(r.seen.Bytes())
}

// Who sits on the way learns nothing of what is exchanged.
func TestRelayLearnsNothing(t *testing.T) {
	t.Parallel()
	_, root := serve(t, "tcp", 2)
	r := newRelay(t, root, nil)
	js := []*Job{join(t, root, 0, 2), join(t, "tcp:"+r.ln.Addr().String(), 1, 2)}
	heard := make(chan string, 1)
	js[1].NotifyReceived(func(_ int, _ string, val []byte) { heard <- string(val) })
	secrets := []string{"address of an endpoint", "key of memory", "name of it", "what is sent", "why it ends"}
	ctx := testutil.Context(t, testutil.Limit)
	require.NoError(t, js[1].Put(ctx, secrets[2], []byte(secrets[0])))
	require.NoError(t, js[0].Put(ctx, secrets[2], []byte(secrets[1])))
	v, err := js[1].Get(ctx, 0, secrets[2])
	require.NoError(t, err)
	require.Equal(t, secrets[1], string(v))
	require.NoError(t, js[0].Send(ctx, 1, "ep", []byte(secrets[3])))
	require.Equal(t, secrets[3], <-heard)
	require.NoError(t, each(js, func(j *Job) error {
		_, err := j.AllGather(ctx, secrets[2], []byte(secrets[j.Rank()]))
		return err
	}))
	js[1].Abort(secrets[4])
	<-js[0].Done()
	all := r.captured()
	require.Contains(t, string(all), magic)
	for _, s := range secrets {
		require.NotContains(t, string(all), s)
	}
	require.NotContains(t, string(all), string(testToken))
}

// Whatever he changes is noticed by the side that gets it, and taken for nothing
// else.
func TestRelayCannotChange(t *testing.T) {
	t.Parallel()
	var held []byte // of one relay at a time
	tricks := map[string]func(n, at int, piece []byte) ([][]byte, bool){
		"flips the first byte": func(n, at int, p []byte) ([][]byte, bool) {
			if n == at {
				p[4] ^= 1
			}
			return [][]byte{p}, true
		},
		"flips the last byte": func(n, at int, p []byte) ([][]byte, bool) {
			if n == at {
				p[len(p)-1] ^= 0x80
			}
			return [][]byte{p}, true
		},
		"shortens": func(n, at int, p []byte) ([][]byte, bool) {
			if n == at {
				p = p[:len(p)-1]
				le.PutUint32(p, uint32(len(p)-4))
			}
			return [][]byte{p}, true
		},
		"replays": func(n, at int, p []byte) ([][]byte, bool) {
			if n == at {
				return [][]byte{p, p}, true
			}
			return [][]byte{p}, true
		},
		"says that nothing follows": func(n, at int, p []byte) ([][]byte, bool) {
			if n == at {
				return [][]byte{{16, 0, 0, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}}, true
			}
			return [][]byte{p}, true
		},
		"puts in a frame": func(n, at int, p []byte) ([][]byte, bool) {
			if n == at {
				frame := message{typ: msgAbort, text: "by a stranger"}
				return [][]byte{frame.append(nil), p}, true
			}
			return [][]byte{p}, true
		},
		"swaps": func(n, at int, p []byte) ([][]byte, bool) {
			switch n {
			case at:
				held = p
				return nil, true
			case at + 1:
				return [][]byte{p, held}, true
			}
			return [][]byte{p}, true
		},
		"drops": func(n, at int, p []byte) ([][]byte, bool) {
			if n == at {
				return nil, true
			}
			return [][]byte{p}, true
		},
		"cuts off": func(n, at int, p []byte) ([][]byte, bool) {
			if n == at {
				return nil, false
			}
			return [][]byte{p}, true
		},
		"cuts within": func(n, at int, p []byte) ([][]byte, bool) {
			if n == at {
				return [][]byte{p[:len(p)-1]}, false
			}
			return [][]byte{p}, true
		},
	}
	for name, trick := range tricks {
		for _, toServer := range []bool{true, false} {
			for at := range 3 {
				t.Run(fmt.Sprintf("%s/%v/%d", name, toServer, at), func(t *testing.T) {
					relayChanges(t, toServer, at, trick)
				})
			}
		}
	}
}

func relayChanges(t *testing.T, toServer bool, at int, trick func(n, at int, piece []byte) ([][]byte, bool)) {
	srv, root := serve(t, "tcp", 2)
	var cut atomic.Bool
	r := newRelay(t, root, func(up bool, n int, p []byte) ([][]byte, bool) {
		if up != toServer {
			return [][]byte{p}, true
		}
		out, goOn := trick(n, at, p)
		if !goOn {
			cut.Store(true)
		}
		return out, goOn
	})
	good := join(t, root, 0, 2)
	victim := join(t, "tcp:"+r.ln.Addr().String(), 1, 2)
	// There is always more to say, so that whatever is held back is missed.
	ctx, cancel := context.WithCancel(testutil.Context(t, testutil.Limit))
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for n := i; victim.Put(ctx, fmt.Sprint(n), fmt.Append(nil, n)) == nil; n += 4 {
			}
		})
		wg.Go(func() {
			for good.Send(ctx, 1, "k", nil) == nil {
			}
		})
	}
	if toServer {
		<-good.Gone(1)
		why := good.GoneReason(1)
		if cut.Load() {
			require.NotEqual(t, leftText, why)
		} else {
			require.Contains(t, why, ErrForged.Error())
		}
	} else {
		<-victim.Done()
		require.ErrorIs(t, victim.Err(), ErrServerGone)
		if cut.Load() {
			require.NotContains(t, victim.Err().Error(), endOfServer(io.EOF).Error())
		} else {
			require.ErrorIs(t, victim.Err(), ErrForged)
		}
	}
	cancel()
	wg.Wait()
	require.NoError(t, srv.Err(), "a stranger ended the job")
	require.NoError(t, good.Err())
	victim.Close()
	if v, err := good.Get(testutil.Context(t, testutil.Limit), 1, "0"); err == nil {
		require.Equal(t, "0", string(v))
	} else {
		require.True(t, errors.Is(err, ErrPeerGone), "%v", err)
	}
}
