package shm

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/testutil"
)

// putter is a child that puts what it has, all ones, to the region that it is told, over
// and over until that fails, and says how it failed.
var putter = testutil.NewChild("shm-putter", func(_ []string, in *bufio.Reader, out io.Writer) error {
	l, err := open(Options{})
	if err != nil {
		return err
	}
	ep, err := l.newEndpoint(fabric.EndpointOptions{})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%x\n", ep.Address())
	var addr, kb []byte
	if _, err := fmt.Fscanf(in, "%x %x\n", &addr, &kb); err != nil {
		return err
	}
	ctx, cancel := contextFor(testutil.Limit)
	defer cancel()
	if err := ep.Connect(ctx, addr); err != nil {
		return err
	}
	key, _, err := fabric.ParseRemoteKey(kb)
	if err != nil {
		return err
	}
	mem, err := l.Register(mustScratch(int(key.Len)), fabric.AccessAll)
	if err != nil {
		return err
	}
	for i := range mem.Bytes() {
		mem.Bytes()[i] = 0xff
	}
	fmt.Fprintln(out, "up", ep.cma.why)
	wr := write(mem, 0, int(key.Len), key, 0)
	var cs [4]fabric.Completion
	for ended := false; !ended; {
		if _, err := ep.Post([]fabric.WR{wr}); err != nil {
			break
		}
		for _, c := range cs[:l.Poll(cs[:])] {
			ended = ended || c.Status != fabric.StatusOK
			if ended {
				fmt.Fprintln(out, c.Status)
				break
			}
		}
	}
	_, _ = in.ReadString('\n')
	return nil
})

// A peer that is stopped in the middle of a long put keeps the memory: Close says that it
// is in use, whatever has become of this side's endpoint meanwhile, until the peer goes
// on and sees that it must not, or dies. After Close has returned nil nothing is written.
func TestCloseWhileThePeerIsStopped(t *testing.T) {
	for _, how := range []string{"goes on", "dies", "endpoint closed, goes on", "endpoint closed, dies", "link closed, goes on"} {
		t.Run(how, func(t *testing.T) {
			testutil.NoLeaks(t)
			l, err := open(Options{})
			require.NoError(t, err)
			defer l.Close()
			ep, err := l.newEndpoint(fabric.EndpointOptions{})
			require.NoError(t, err)
			mem := testutil.Scratch(t, 24<<20)
			r, err := l.Register(mem, fabric.AccessRemoteWrite)
			require.NoError(t, err)
			p := putter.Start(t)
			addr, err := hex.DecodeString(p.Line(t, testutil.Limit))
			require.NoError(t, err)
			_, err = fmt.Fprintf(p.In, "%x %x\n", ep.Address(), r.Key().Append(nil))
			require.NoError(t, err)
			require.NoError(t, ep.Connect(testutil.Context(t, testutil.Limit), addr))
			if up := p.Line(t, testutil.Limit); strings.TrimSpace(up) != "up" {
				t.Skip("no process_vm_writev here:", up)
			}
			hdr := ep.own.hdr
			testutil.Eventually(t, testutil.Limit, func() bool {
				p.Stop(t)
				if hdr.hazard.Load() == r.Key().RKey {
					return true
				}
				p.Continue()
				return false
			}, "the child to be stopped in a put")
			if strings.HasPrefix(how, "endpoint") {
				require.NoError(t, ep.Close())
			}
			if strings.HasPrefix(how, "link") {
				require.ErrorIs(t, l.Close(), fabric.ErrInUse)
			}
			require.ErrorIs(t, r.Close(), fabric.ErrInUse)
			if strings.HasSuffix(how, "dies") {
				p.Kill()
			} else {
				p.Continue()
			}
			testutil.Eventually(t, testutil.Limit, func() bool { return r.Close() == nil }, "the region to close")
			clear(mem)
			if strings.HasSuffix(how, "dies") {
				require.Error(t, p.Wait(testutil.Limit))
			} else {
				st := p.Line(t, testutil.Limit) // it has ended what it did
				require.Contains(t, []string{fabric.StatusRemoteAccess.String(), fabric.StatusPeerGone.String()}, st)
			}
			require.Equal(t, len(mem), bytes.Count(mem, []byte{0}), "written after Close")
		})
	}
}

// A stopped peer is neither gone nor does it hold up what it need not help with; when it
// goes on, everything does.
func TestStoppedPeerIsNotGone(t *testing.T) {
	for name, o := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // they wait
			x := startTarget(t, o)
			key, blocked := x.seg, o.DisableSegments && o.DisableCMA
			x.Stop(t)
			testutil.Fill(x.mem.Bytes()[:5*chunkSize], 3, 0)
			post(t, x.ep, write(x.mem, 0, 5*chunkSize, key, 0))
			note := write(x.mem, 0, 8, key, 0)
			note.Flags = fabric.FlagNotify
			notes := 0
			for { // until the ring or the queue is full
				n, err := x.ep.Post([]fabric.WR{note})
				require.NoError(t, err)
				if notes += n; n == 0 || notes == fabric.DefaultDepth/2 {
					break
				}
			}
			if !blocked {
				require.Equal(t, fabric.StatusOK, await(t, x.l).Status)
			}
			for end := time.Now().Add(1500 * time.Millisecond); time.Now().Before(end); { // deadline: its PeerTimeout is 1 s
				poll(t, x.l)
				time.Sleep(time.Millisecond) // sleep: nothing may happen, however long one waits
			}
			require.NoError(t, x.ep.Err())
			x.Continue()
			var cs [8]fabric.Completion
			wrote := !blocked
			testutil.Eventually(t, testutil.Limit, func() bool {
				for _, c := range cs[:x.l.Poll(cs[:])] {
					require.NoError(t, c.Err())
					wrote = wrote || c.Op == fabric.OpWrite
					if c.Op == fabric.OpNotify {
						notes--
					}
				}
				return wrote && notes == 0
			}, "the child to go on")
			require.NoError(t, x.ep.Close())
			require.NoError(t, x.Wait(testutil.Limit))
		})
	}
}
