package sampling

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/sim"
)

// distant is an endpoint to a peer over a network.
type distant struct {
	fabric.Endpoint
	class string
	rtt   time.Duration
}

func (d distant) Distance() fabric.Distance { return fabric.Distance{Class: d.class, RTT: d.rtt} }

func TestClassOfADistance(t *testing.T) {
	t.Parallel()
	for want, ep := range map[Class]distant{
		Near: {class: "near", rtt: 50 * time.Millisecond}, Long: {class: "long"}, Long4: {class: "long", rtt: 4 * time.Millisecond},
		Long16: {class: "long", rtt: 63 * time.Millisecond}, Long64: {class: "long", rtt: time.Hour}, Remote: {class: "host"},
	} {
		c := ClassOf(ep, false)
		require.Equal(t, want, c)
		require.NoError(t, Key{Class: c}.validate())
		require.Equal(t, SameHost, ClassOf(ep, true))
		require.Equal(t, ep.class == "long", c.IsLong())
	}
	require.False(t, Class("").IsLong())
}

func TestNearestClass(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		of    Class
		among []Class
		want  Class
	}{
		{Long4, []Class{SameHost, Near}, Near}, {Near, []Class{SameHost, Long4, Near}, Near}, {Long16, []Class{Long64, Long4}, Long4},
		{SharedL3, []Class{Sockets, OneCore}, OneCore}, {Remote, []Class{Long}, Long},
	} {
		got, ok := c.of.Nearest(c.among)
		require.True(t, ok)
		require.Equal(t, c.want, got, "of %v nearest to %v", c.among, c.of)
	}
	_, ok := Near.Nearest(nil)
	require.False(t, ok)
}

// A measurement ends when it has moved what it may, which each side bounds for itself.
func TestBytesAreBounded(t *testing.T) {
	t.Parallel()
	const most = 256 << 10
	o := Options{Mode: Force, Budget: MaxBudget, MaxSize: 64 << 10, MaxBytes: most, StepTimeout: time.Minute}
	free := o
	free.MaxBytes = 0
	a, b := sessions(t, simLinks(sim.Options{}), o, free)
	ra, rb := agreed(t, a, b)
	require.Positive(t, ra.Bytes)
	require.LessOrEqual(t, ra.Bytes, int64(most/2+6*o.MaxSize), "one chain more")
	require.Greater(t, rb.Bytes, int64(most))
}
