package shm

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/testutil"
)

// Two processes: the test and a child that serves until its end.

// target is a child with one link, a mapped and a private region, that polls
// and sleeps as a progress engine does. It answers each notification by a
// notified write of what it got, imm + 1, to the address it was told.
var target = testutil.NewChild("shm-target", func(args []string, in *bufio.Reader, out io.Writer) error {
	var o Options
	if err := json.Unmarshal([]byte(args[0]), &o); err != nil {
		return err
	}
	l, err := open(o)
	if err != nil {
		return err
	}
	ep, err := l.newEndpoint(fabric.EndpointOptions{PeerTimeout: time.Second})
	if err != nil {
		return err
	}
	seg, err := l.Alloc(regionSize, fabric.AccessAll)
	if err != nil {
		return err
	}
	priv, err := l.Register(mustScratch(regionSize), fabric.AccessAll)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%x %x %x\n", ep.Address(), seg.Key().Append(nil), priv.Key().Append(nil))
	line, err := in.ReadString('\n')
	if err != nil {
		return err
	}
	f := strings.Fields(line)
	addr, _ := hex.DecodeString(f[0])
	kb, _ := hex.DecodeString(f[1])
	key, _, err := fabric.ParseRemoteKey(kb)
	if err != nil {
		return err
	}
	ctx, cancel := contextFor(testutil.Limit)
	defer cancel()
	if err := ep.Connect(ctx, addr); err != nil {
		return err
	}
	fmt.Fprintln(out, "up")
	var cs [8]fabric.Completion
	var sp cpu.Spinner
	for {
		n := l.Poll(cs[:])
		for _, c := range cs[:n] {
			switch c.Op {
			case fabric.OpDown:
				if err := ep.Close(); err != nil {
					return err
				}
				l.Poll(cs[:])
				for _, r := range []fabric.Region{seg, priv} {
					if err := r.Close(); err != nil {
						return err
					}
				}
				return l.Close()
			case fabric.OpNotify:
				wr := write(seg, 0, int(c.Bytes), key, 0)
				wr.Flags, wr.Imm = fabric.FlagNotify, c.Imm+1
				if k, err := ep.Post([]fabric.WR{wr}); k != 1 || err != nil {
					return fmt.Errorf("echo: %d, %v", k, err)
				}
			default:
				return fmt.Errorf("completion %+v: %w", c, c.Err())
			}
		}
		if n > 0 {
			sp.Reset()
		} else if sp.Wait() > 20 {
			if ok, err := l.Arm(); err != nil {
				return err
			} else if ok {
				waitReadable(l.FD(), 100)
			}
			l.Disarm()
		}
	}
})

const regionSize = 1 << 20

// far is the other end of a child.
type far struct {
	*testutil.Proc
	ep        *endpoint
	l         *link
	mem       fabric.Region
	seg, priv fabric.RemoteKey
}

func startTarget(t *testing.T, o Options) *far {
	t.Helper()
	l, err := open(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	x := &far{l: l, mem: alloc(t, l, regionSize)}
	x.ep, err = l.newEndpoint(fabric.EndpointOptions{PeerTimeout: time.Second})
	require.NoError(t, err)
	js, err := json.Marshal(o)
	require.NoError(t, err)
	x.Proc = target.Start(t, string(js))
	var addr []byte
	for i, f := range strings.Fields(x.Line(t, testutil.Limit)) {
		b, err := hex.DecodeString(f)
		require.NoError(t, err)
		switch i {
		case 0:
			addr = b
		case 1:
			x.seg, _, err = fabric.ParseRemoteKey(b)
		case 2:
			x.priv, _, err = fabric.ParseRemoteKey(b)
		}
		require.NoError(t, err)
	}
	_, err = fmt.Fprintf(x.In, "%x %x\n", x.ep.Address(), x.mem.Key().Append(nil))
	require.NoError(t, err)
	require.NoError(t, x.ep.Connect(testutil.Context(t, testutil.Limit), addr))
	require.Equal(t, "up", x.Line(t, testutil.Limit))
	return x
}

func TestTwoProcesses(t *testing.T) {
	for name, o := range ways {
		t.Run(name, func(t *testing.T) {
			x := startTarget(t, o)
			if o.DisableCMA {
				require.False(t, x.ep.cma.works)
			}
			for i, key := range []fabric.RemoteKey{x.seg, x.priv} {
				for k, n := range []int{1, 8, 13, 4096, chunkSize, chunkSize + 4, 5*chunkSize + 1, regionSize / 2} {
					seed := uint64(10*i + k + 1)
					testutil.Fill(x.mem.Bytes()[:n], seed, 0)
					clear(x.mem.Bytes()[regionSize/2:])
					post(t, x.ep, write(x.mem, 0, n, key, 5))
					rd := write(x.mem, regionSize/2, n, key, 5)
					rd.Op = fabric.OpRead
					post(t, x.ep, rd)
					require.Equal(t, fabric.OpWrite, await(t, x.l).Op)
					c := await(t, x.l)
					require.Equal(t, fabric.OpRead, c.Op)
					require.Equal(t, fabric.StatusOK, c.Status)
					require.NoError(t, testutil.Verify(x.mem.Bytes()[regionSize/2:][:n], seed, 0))
				}
				add := write(x.mem, 0, 8, key, regionSize-8) // not written to above
				add.Op, add.Operand = fabric.OpFetchAdd, 3
				for round := range uint64(3) {
					post(t, x.ep, add)
					require.Equal(t, fabric.StatusOK, await(t, x.l).Status)
					require.Equal(t, 3*round, testutil.Load64(x.mem.Bytes()))
				}
			}
			// Echo: what was written to the segment comes back.
			for i := range uint32(200) {
				testutil.Fill(x.mem.Bytes()[4096:8192], uint64(i), 0)
				wr := write(x.mem, 4096, 1+int(i)*20, x.seg, 0)
				wr.Flags, wr.Imm = fabric.FlagNotify, i
				post(t, x.ep, wr)
				c := await(t, x.l)
				require.Equal(t, fabric.Completion{Op: fabric.OpNotify, Imm: i + 1, Bytes: uint32(wr.Len())}, c)
				require.NoError(t, testutil.Verify(x.mem.Bytes()[:wr.Len()], uint64(i), 0))
			}
			require.NoError(t, x.ep.Close())
			require.NoError(t, x.Wait(testutil.Limit)) // the child closes without leaks of its own making
		})
	}
}

// A peer killed at any moment is noticed; nothing hangs, nothing is lost from
// the account, and nothing stays behind.
func TestPeerKilled(t *testing.T) {
	for name, o := range ways {
		t.Run(name, func(t *testing.T) {
			testutil.NoLeaks(t)
			for round := range 3 {
				t.Run(fmt.Sprint(round), func(t *testing.T) {
					x := startTarget(t, o)
					open := map[uint64]bool{}
					down := 0
					var err error
					var cs [16]fabric.Completion
					id := uint64(0)
					killAt := uint64(50 + 400*round)
					testutil.Eventually(t, testutil.Limit, func() bool {
						key := x.seg
						if id%3 == 0 {
							key = x.priv
						}
						wr := write(x.mem, 8, 3000, key, int(id%1000))
						wr.ID = id
						if id%2 == 0 {
							wr.Op = fabric.OpRead
						}
						var n int
						if err == nil {
							if n, err = x.ep.Post([]fabric.WR{wr}); n == 1 {
								open[id] = true
								id++
							}
						}
						if id == killAt {
							x.Kill()
						}
						for _, c := range cs[:x.l.Poll(cs[:])] {
							if c.Op == fabric.OpDown {
								down++
								require.Equal(t, fabric.StatusPeerGone, c.Status)
								continue
							}
							require.True(t, open[c.ID])
							delete(open, c.ID)
							if c.Status != fabric.StatusOK {
								require.Contains(t, []fabric.Status{fabric.StatusPeerGone, fabric.StatusFlushed}, c.Status)
							}
						}
						return down == 1
					}, "the end")
					require.Empty(t, open)
					require.ErrorIs(t, x.ep.Err(), fabric.ErrPeerGone)
					poll(t, x.l)
					_, err = x.ep.Post([]fabric.WR{{Op: fabric.OpWrite}})
					require.ErrorIs(t, err, fabric.ErrDown)
				})
			}
		})
	}
}

// A sleeping survivor wakes up.
func TestPeerKilledWhileAsleep(t *testing.T) {
	x := startTarget(t, Options{})
	sleepOn(t, x.l)
	x.Kill()
	require.True(t, readable(t, x.l, testutil.Limit))
	x.l.Disarm()
	require.Equal(t, fabric.OpDown, await(t, x.l).Op)
}
