package rma

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/testutil"
)

// A peer that is stopped, or that ends, while both ends copy a message is found like any other, and
// the memory can be used again.
func TestPeerLostInASharedMessage(t *testing.T) {
	t.Parallel()
	const hang = 4 * time.Second
	for name, private := range map[string]bool{"mapped": false, "private": true} {
		for _, killed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/killed=%v", name, killed), func(t *testing.T) {
				t.Parallel()
				rounds := 1
				if killed {
					rounds = 5
				}
				for range rounds {
					e, second, mem, _ := withSecond(t, "shm", hang)
					ctx, p := testutil.Context(t, testutil.Limit), e.Peer(1)
					var n atomic.Int64
					ended := make(chan error, 1)
					go func() {
						if private {
							ended <- swapPrivate(ctx, p, func() { n.Add(1) })
						} else {
							ended <- swap(ctx, p, mem.Slice(0, 8<<20), mem.Slice(8<<20, 8<<20), func() { n.Add(1) })
						}
					}()
					if private {
						say(t, second, "exchange private")
					} else {
						say(t, second, "exchange")
					}
					testutil.Eventually(t, testutil.Limit, func() bool { return n.Load() > 3 }, "messages")
					want := ErrPeerHung
					if killed {
						want = ErrPeerGone
						second.Kill()
					} else {
						second.Stop(t)
					}
					var peer *PeerError
					err := <-ended
					require.ErrorIs(t, err, want)
					require.ErrorAs(t, err, &peer)
					if !killed {
						second.Continue()
					}
					testutil.Eventually(t, testutil.Limit, func() bool { return mem.Close() == nil }, "the memory is free")
				}
			})
		}
	}
}
