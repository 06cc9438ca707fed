package message

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/sim"
)

// clingingLink is a link whose peers let go of regions at the second Close only.
type clingingLink struct {
	fabric.Link
	regions []*clinging
}

func (l *clingingLink) Alloc(size int, access fabric.Access) (fabric.Region, error) {
	r, err := l.Link.Alloc(size, access)
	return l.add(r), err
}

func (l *clingingLink) Register(mem []byte, access fabric.Access) (fabric.Region, error) {
	r, err := l.Link.Register(mem, access)
	return l.add(r), err
}

func (l *clingingLink) add(r fabric.Region) fabric.Region {
	l.regions = append(l.regions, &clinging{Region: r})
	return l.regions[len(l.regions)-1]
}

type clinging struct {
	fabric.Region
	asked, closed bool
}

func (r *clinging) Close() error {
	if !r.asked {
		r.asked = true
		return fabric.ErrInUse
	}
	r.closed = true
	return r.Region.Close()
}

// A channel whose memory a peer is still using keeps it, says so, and gives it back when
// it is closed again.
func TestCloseAgain(t *testing.T) {
	t.Parallel()
	a, b := pair(t, simLinks(sim.Options{}), 4096, Options{}, Options{})
	l := &clingingLink{Link: a.link}
	ep, err := l.NewEndpoint(fabric.EndpointOptions{ID: 9})
	require.NoError(t, err)
	ch, err := Open(l, ep, Options{})
	require.NoError(t, err)
	require.NoError(t, ch.Connect(b.ch.Setup()))
	require.NoError(t, ep.Close())
	require.NotEmpty(t, l.regions)
	held := ch.Memory()
	require.Positive(t, held)
	require.ErrorIs(t, ch.Close(), fabric.ErrInUse)
	require.Equal(t, held, ch.Memory(), "nothing is freed")
	require.NoError(t, ch.Close())
	for i, r := range l.regions {
		require.True(t, r.closed, "region %d", i)
	}
	require.Zero(t, ch.Memory())
	require.NoError(t, ch.Close())
}

// script plays what a peer sent before it died: each letter a message, upper case one
// that is announced and may be on its way still. The bytes of message i are all i+1.
func (s *side) say(t *testing.T, script string, done Completer) {
	t.Helper()
	for i, r := range script {
		n, tag := 50, uint32(r-'a')
		if r < 'a' {
			n, tag = 20000, uint32(r-'A')
		}
		data := s.reg.Bytes()[i*20000:][:n]
		for k := range data {
			data[k] = byte(i + 1)
		}
		s.ch.Send(&Out{Data: data, LKey: s.reg.LKey(), RKey: s.reg.Key().RKey, Registered: true, Tag: tag, Done: done})
	}
}

// What is received of a peer that dies is the beginning of what it sent: nothing behind a
// message that was lost, to a receive that would have taken that one; receives from any
// peer stay for the others; what nobody had asked for is there for later receives.
func TestWhatCameOfADeadPeer(t *testing.T) {
	const lost = 0
	type wanted struct {
		tag int // -1: any
		got int // number of the message, lost
	}
	for _, c := range []struct {
		name, sent    string
		before, after []wanted // receives posted before the death, and after it
	}{
		{"small ones wait", "aab", nil, []wanted{{0, 1}, {1, 3}, {0, 2}, {0, lost}}},
		{"behind a large one", "aAaa", []wanted{{0, 1}, {0, lost}, {0, lost}}, []wanted{{0, lost}}},
		{"any tag, behind a large one", "aBaa", []wanted{{-1, 1}, {-1, lost}, {-1, lost}}, []wanted{{-1, lost}}},
		{"of another tag", "aBaa", []wanted{{0, 1}, {1, lost}, {0, 3}}, []wanted{{0, 4}, {1, lost}}},
		{"a large one nobody asked for", "Baab", []wanted{{0, 2}}, []wanted{{-1, lost}, {1, lost}, {0, 3}, {0, lost}}},
	} {
		for turns := range 4 {
			t.Run(fmt.Sprintf("%s/%d", c.name, turns), func(t *testing.T) {
				t.Parallel()
				a, b := pair(t, simLinks(sim.Options{Seed: 1, MaxDelay: 60}), 200_000, Options{Adverts: -1, Policy: policies["table"]}, Options{Adverts: -1})
				post := func(ws []wanted) (notes []*note, bufs [][]byte) {
					for _, w := range ws {
						n, buf := &note{}, make([]byte, 20000)
						b.ch.Recv(&In{Buf: buf, Tag: uint32(max(w.tag, 0)), Any: w.tag < 0, Done: n})
						notes, bufs = append(notes, n), append(bufs, buf)
					}
					return notes, bufs
				}
				check := func(ws []wanted, notes []*note, bufs [][]byte) {
					for i, w := range ws {
						require.Equal(t, 1, notes[i].n, "%d", i)
						if w.got == lost {
							require.Error(t, notes[i].err, "%d", i)
							continue
						}
						require.NoError(t, notes[i].err, "%d", i)
						require.EqualValues(t, w.got, bufs[i][0], "%d", i)
					}
				}
				var sent note
				notes, bufs := post(c.before)
				a.say(t, c.sent, &sent)
				for range 1000 {
					require.NoError(t, a.turn())
				}
				for range turns { // b looks, and its reads are under way when a dies
					require.NoError(t, b.turn())
				}
				require.Zero(t, b.ch.rendezvous.Stats().Messages)
				require.NoError(t, a.ep.Close())
				for range 50 {
					_ = b.turn()
				}
				require.Error(t, b.ch.Err())
				require.NoError(t, b.ep.Close())
				for range 10 {
					b.poll()
				}
				b.ch.Sever(nil)
				check(c.before, notes, bufs)
				notes, bufs = post(c.after)
				check(c.after, notes, bufs)
			})
		}
	}
}

// A receive that was advertised ends when the peer has answered that. It gets no message
// that lies behind a lost one, whether the peer died before it answered or after.
func TestAdvertisedBehindALostMessage(t *testing.T) {
	for _, answered := range []bool{false, true} {
		t.Run(fmt.Sprintf("answered=%t", answered), func(t *testing.T) {
			t.Parallel()
			advertisedBehindALostMessage(t, answered)
		})
	}
}

func advertisedBehindALostMessage(t *testing.T, answered bool) {
	lost, came := 0, 0
	for seed := range uint64(60) {
		a, b := pair(t, simLinks(sim.Options{Seed: seed, MaxDelay: 60}), 200_000, Options{Policy: policies["table"]}, Options{})
		b.ch.advertiseFrom, b.ch.advertisePrivate, b.ch.advertised.outcomes.always, b.ch.pins.most = 1, 1, true, 1<<30
		var sent note
		var got [2]note
		for i := range got {
			b.ch.Recv(&In{Buf: make([]byte, 20000), Any: true, Done: &got[i]})
		}
		require.NoError(t, b.turn())
		require.EqualValues(t, 2, b.ch.Stats().Adverts)
		a.say(t, "Aa", &sent)
		require.NoError(t, a.turn()) // before the adverts are there
		for range 1000 {
			if b.ch.next == 3 || got[0].n > 0 {
				break
			}
			require.NoError(t, b.turn())
		}
		if b.ch.next != 3 || b.ch.order.matched == nil {
			continue // the first one is here, or was written
		}
		second := b.ch.order.matched[len(b.ch.order.matched)-1]
		for answered && len(b.ch.order.matched) > 0 && second.ad == adOpen {
			require.NoError(t, a.turn())
			require.NoError(t, b.turn())
		}
		if got[0].n > 0 {
			continue // that took longer than the first one
		}
		require.NoError(t, a.ep.Close())
		for range 50 {
			_ = b.turn()
		}
		require.NoError(t, b.ep.Close())
		for range 10 {
			b.poll()
		}
		b.ch.Sever(nil)
		for i := range got {
			require.Equal(t, 1, got[i].n, "seed %d, receive %d", seed, i)
		}
		if got[0].err == nil { // it was here, but for the answer
			came++
			require.NoError(t, got[1].err, "seed %d", seed)
			continue
		}
		lost++
		require.Error(t, got[1].err, "seed %d", seed)
	}
	require.Positive(t, lost)
	require.Equal(t, !answered, came > 0)
}
