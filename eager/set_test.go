package eager

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/sim"
	"github.com/seed33544411/rma/internal/offheap"
)

func TestSetIsLazyAndBounded(t *testing.T) {
	before := offheap.Total()
	link, other := simLinks(sim.Options{})(t)
	base := offheap.Total()
	s, err := NewSet(link, SetOptions{MaxChannels: 3, After: 2, Channel: Options{Blocks: 8, BlockSize: 512}})
	require.NoError(t, err)
	require.Equal(t, base, offheap.Total(), "nothing is made ahead")
	require.Nil(t, s.Get(5))
	require.Nil(t, s.Get(1<<31))
	require.False(t, s.Wants(1<<31))

	var eps []fabric.Endpoint
	open := func(peer uint32) error {
		ea, eb := join(t, link, other, 0)
		ch, err := s.Open(peer, ea)
		if err == nil {
			require.Same(t, ch, s.Get(peer))
		}
		eps = append(eps, ea, eb)
		return err
	}
	for _, peer := range []uint32{5, 900, 2} {
		require.False(t, s.Wants(peer))
		require.False(t, s.Wants(peer))
		require.True(t, s.Wants(peer), "the third message earns a channel")
		require.NoError(t, open(peer))
		require.False(t, s.Wants(peer), "has one")
	}
	require.ErrorIs(t, open(5), ErrConnected)
	require.ErrorIs(t, open(6), ErrLimit)
	require.ErrorIs(t, open(MaxPeers), ErrOptions)
	for range 5 {
		require.False(t, s.Wants(6), "no room")
	}
	st := s.Stats()
	require.Equal(t, 3, st.Channels)
	require.Equal(t, offheap.Total()-base, int64(st.Memory), "what is reported is what is mapped")

	// Connecting costs the mirror, and is bounded too.
	su := s.Get(5).Setup()
	require.NoError(t, s.Connect(5, su))
	require.Equal(t, offheap.Total()-base, int64(s.Stats().Memory))
	require.ErrorIs(t, s.Connect(77, su), ErrNotConnected)
	s.o.MaxMemory = s.Stats().Memory + 100
	require.ErrorIs(t, s.Connect(900, su), ErrLimit)

	for _, ep := range eps {
		require.NoError(t, ep.Close())
	}
	require.NoError(t, s.Close(900))
	require.NoError(t, s.Close(900))
	require.Nil(t, s.Get(900))
	require.Len(t, s.Members(), 2)
	for _, m := range s.Members() {
		require.Same(t, s.Get(m.Peer), m.Channel)
	}
	require.NoError(t, s.CloseAll())
	require.Empty(t, s.Members())
	require.Zero(t, s.Stats().Memory)
	require.Equal(t, base, offheap.Total())
	_ = before
}

func TestSetMemoryLimit(t *testing.T) {
	link, _ := simLinks(sim.Options{})(t)
	s, err := NewSet(link, SetOptions{MaxMemory: 100_000, Channel: Options{Blocks: 16, BlockSize: 4096}})
	require.NoError(t, err)
	require.True(t, s.Wants(0), "the first message is enough by default")
	ep, err := link.NewEndpoint(fabric.EndpointOptions{})
	require.NoError(t, err)
	_, err = s.Open(0, ep)
	require.NoError(t, err)
	require.False(t, s.Wants(1))
	_, err = s.Open(1, ep)
	require.ErrorIs(t, err, ErrLimit)
	require.NoError(t, s.CloseAll())

	none, err := NewSet(link, SetOptions{MaxChannels: -1})
	require.NoError(t, err)
	require.False(t, none.Wants(0))
	_, err = NewSet(link, SetOptions{MaxMemory: -1})
	require.ErrorIs(t, err, ErrOptions)
	_, err = NewSet(link, SetOptions{Channel: Options{Blocks: 5}})
	require.ErrorIs(t, err, ErrOptions)
}

// clingingLink is a link whose peers let go of rings at the second Close only.
type clingingLink struct{ fabric.Link }

func (l clingingLink) Alloc(size int, access fabric.Access) (fabric.Region, error) {
	r, err := l.Link.Alloc(size, access)
	return &clinging{Region: r}, err
}

type clinging struct {
	fabric.Region
	asked bool
}

func (r *clinging) Close() error {
	if !r.asked {
		r.asked = true
		return fabric.ErrInUse
	}
	return r.Region.Close()
}

// A channel whose memory a peer is still using stays in the set until it is closed again.
func TestSetKeepsWhatIsInUse(t *testing.T) {
	link, other := simLinks(sim.Options{})(t)
	base := offheap.Total()
	s, err := NewSet(clingingLink{link}, SetOptions{})
	require.NoError(t, err)
	var eps []fabric.Endpoint
	for peer := range uint32(3) {
		ea, eb := join(t, link, other, 0)
		_, err := s.Open(peer, ea)
		require.NoError(t, err)
		eps = append(eps, ea, eb)
	}
	for _, ep := range eps {
		require.NoError(t, ep.Close())
	}
	held := s.Stats().Memory
	require.ErrorIs(t, s.Close(1), fabric.ErrInUse)
	require.Equal(t, held, s.Stats().Memory)
	require.Len(t, s.Members(), 3)
	require.ErrorIs(t, s.CloseAll(), fabric.ErrInUse, "of two")
	require.Nil(t, s.Get(1))
	require.Len(t, s.Members(), 2)
	require.NoError(t, s.CloseAll())
	require.Empty(t, s.Members())
	require.Equal(t, base, offheap.Total())
}
