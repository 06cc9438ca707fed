package coll

import (
	"testing"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/sim"
	"github.com/seed33544411/rma/internal/jobtest"
	"github.com/seed33544411/rma/internal/links"
	"github.com/seed33544411/rma/internal/testutil"
)

// simulated is a network, of the device "sim", that says that it maps memory, but maps none.
var simulated = sim.NewNetwork(sim.Options{Seed: 1, Caps: sim.CapsLike("shm")})

func init() {
	links.Simulate(func(links.Options) (fabric.Link, error) { return simulated.NewLink() })
}

func TestMain(m *testing.M) { testutil.Main(m) }

// job opens the engines of a job of n ranks in this process.
func job(t testing.TB, n int, fabric string) []*rma.Engine {
	t.Helper()
	return jobtest.Open(t, n, fabric)
}
