//go:build unix

package mr

import (
	"strings"
	"testing"

	"github.com/seed33544411/rma/internal/testutil"
)

// The same over an RDMA device, alone and with the memory of shm, where the
// device refuses stale keys and foreign addresses by itself.
func TestIBV(t *testing.T) {
	testutil.RequireRDMA(t)
	for _, names := range [][]string{{"ibv"}, {"shm", "ibv", "tcp"}} {
		for what, f := range map[string]func(*testing.T, *Domain, []*rail){
			"one registration on all rails": oneRegistration,
			"stale keys":                    staleKeys,
			"close waits for holds":         closeWaits,
			"arena against model":           arenaModel,
			"pieces":                        pieces,
			"cache against model":           cacheModel,
		} {
			t.Run(strings.Join(names, "+")+"/"+what, func(t *testing.T) {
				d, rails := open(t, names...)
				f(t, d, rails)
			})
		}
	}
}
