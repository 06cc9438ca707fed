package rma

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/testutil"
)

// openWire opens two ranks that count as ones of two hosts, on devices that a wire joins. They also reach each
// other by the loopback interface. It returns the interfaces of the devices.
func openWire(t *testing.T) (es []*Engine, nets []string) { return openWireWith(t, false) }

// openWireWith does so, with a rail over the same devices if railed.
func openWireWith(t *testing.T, railed bool) (es []*Engine, nets []string) {
	a, b := testutil.RDMAPair(t)
	if a == b {
		testutil.NoRDMA(t, "two devices are needed")
	}
	for _, dev := range []string{a, b} {
		list, err := filepath.Glob("/sys/class/infiniband/" + dev + "/device/net/*")
		if len(list) == 0 { // rdma_rxe
			name, rerr := os.ReadFile("/sys/class/infiniband/" + dev + "/parent")
			require.NoError(t, errors.Join(err, rerr))
			list = []string{string(name[:len(name)-1])}
		}
		nets = append(nets, filepath.Base(list[0]))
	}
	return openWith(t, 2, "", func(c *Config) {
		c.Device, c.Settings = []string{a, b}[c.Job.Rank], map[string]string{"host": fmt.Sprintf("host%d", c.Job.Rank)}
		c.Bind = netip.AddrFrom4([4]byte{127, 0, 0, 1})
		c.PeerTimeout = testutil.Patience(time.Second)
		if railed {
			c.Rails = c.Device
		}
	}), nets
}

// startLine starts a command.
func startLine(t *testing.T, line string) *exec.Cmd {
	t.Helper()
	argv := strings.Fields(line)
	cmd := exec.Command(argv[0], argv[1:]...)
	require.NoError(t, cmd.Start(), line)
	return cmd
}

// lose makes both ranks put until the connection is lost, while f takes verbs away, and returns how long that took on
// each.
func lose(t *testing.T, es []*Engine, mems []*Region, keys []Key, f func()) {
	ctx := testutil.Context(t, testutil.Limit)
	var tasks sync.WaitGroup
	errs := make([]error, len(es))
	done := make([]time.Time, len(es))
	for r, e := range es {
		tasks.Go(func() {
			p := e.Peer(1 - r)
			for errs[r] == nil {
				errs[r] = p.Put(keys[1-r].At(0), mems[r].Slice(0, 64<<10)).Wait(ctx)
			}
			done[r] = time.Now()
		})
	}
	start := time.Now()
	f()
	tasks.Wait()
	for r, err := range errs {
		var pe *PeerError
		require.ErrorAs(t, err, &pe)
		require.True(t, errors.Is(err, ErrPeerGone) || errors.Is(err, ErrFlushed), "%v", err)
		t.Logf("rank %d: %v after %v", r, err, done[r].Sub(start))
	}
}

// With rails, nothing fails when verbs is lost on both devices at once, under load: tcp carries on.
func TestContinuesWithoutVerbs(t *testing.T) {
	for _, c := range []struct{ name, away, back string }{
		{"silence", "tc qdisc replace dev %s root netem loss 100%%", "tc qdisc del dev %s root"},
		{"down", "ip link set dev %s down", "ip link set dev %s up"},
	} {
		t.Run(c.name, func(t *testing.T) {
			es, nets := openWireWith(t, true)
			on := func(line string) {
				for _, net := range nets {
					require.NoError(t, startLine(t, fmt.Sprintf(line, net)).Wait())
				}
			}
			connectRails(t, es)
			mems, keys := share(t, es, cableMemory)
			works(t, es, mems, keys)
			carries(t, es, mems, keys, "ibv")
			t.Cleanup(func() { on(c.back) })
			var tasks sync.WaitGroup
			var longest [2]time.Duration
			errs := make([]error, len(es))
			ctx := testutil.Context(t, testutil.Limit)
			for r, e := range es {
				tasks.Go(func() {
					p := e.Peer(1 - r)
					for n := 0; n < 100 && errs[r] == nil; n++ { // and then some over tcp
						if p.Link() != "tcp" {
							n = 0
						}
						start := time.Now()
						put, got := mems[r].Bytes()[:8<<10], make([]byte, 8<<10)
						testutil.Fill(put, uint64(n), uint64(r))
						errs[r] = errors.Join(p.Put(keys[1-r].At(64<<10), mems[r].Slice(0, 8<<10)).Wait(ctx), p.GetBytes(got, keys[1-r].At(64<<10)).Wait(ctx))
						if !bytes.Equal(got, put) {
							errs[r] = errors.Join(errs[r], fmt.Errorf("another content in round %d", n))
						}
						longest[r] = max(longest[r], time.Since(start))
					}
				})
			}
			on(c.away)
			tasks.Wait()
			require.NoError(t, errors.Join(errs...))
			t.Logf("operations paused for %v and %v", longest[0], longest[1])
			carries(t, es, mems, keys, "tcp")
			for r, e := range es {
				require.Positive(t, e.Peer(1 - r).Stats().Rails[0].Lost)
				require.False(t, e.Peer(1-r).Unaided())
			}
		})
	}
}

// A Reset after verbs was lost finds tcp: a wire that carries nothing, a port that is down, an interface that is deleted
// with its device under load. The kernel keeps what this process has open of the device until that is closed.
func TestVerbsLost(t *testing.T) {
	for _, c := range []struct {
		name, away, back string // %s: the interface
		waits            bool
	}{
		{"silence", "tc qdisc replace dev %s root netem loss 100%%", "tc qdisc del dev %s root", false},
		{"device", "ip link del %s", "", true}, // the last, because nothing brings it back
	} {
		t.Run(c.name, func(t *testing.T) {
			var deletions []*exec.Cmd
			t.Cleanup(func() { // behind the cleanup of the engines, for which they wait
				for _, cmd := range deletions {
					_ = cmd.Wait() // of a pair, the second is gone with the first
				}
			})
			es, nets := openWire(t)
			mems, keys := share(t, es, cableMemory)
			works(t, es, mems, keys)
			carries(t, es, mems, keys, "ibv")
			lose(t, es, mems, keys, func() {
				for _, net := range nets {
					if cmd := startLine(t, fmt.Sprintf(c.away, net)); c.waits {
						deletions = append(deletions, cmd)
					} else {
						require.NoError(t, cmd.Wait())
					}
				}
			})
			start := time.Now()
			together(t, es, func(ctx context.Context, e *Engine) error { return e.Peer(1 - e.Rank()).Reset(ctx) })
			t.Logf("reset took %v", time.Since(start))
			carries(t, es, mems, keys, "tcp")
			_, err := es[0].Peer(1).FetchAdd(keys[1].At(8), 1).Wait(testutil.Context(t, testutil.Limit))
			require.Equal(t, c.name == "device", err == nil, "%v", err) // nobody else uses a device that is gone
			lateMems, lateKeys := share(t, es, cableMemory)
			carries(t, es, lateMems, lateKeys, "tcp")
			if c.back == "" {
				return
			}
			for _, net := range nets {
				require.NoError(t, startLine(t, fmt.Sprintf(c.back, net)).Wait())
			}
			sunder(t, es)
			reconnect(t, es[0])
			carries(t, es, lateMems, lateKeys, "ibv")
			works(t, es, mems, keys)
		})
	}
}
