package rdv

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/eager"
	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/sim"
	"github.com/seed33544411/rma/flowctl"
	"github.com/seed33544411/rma/scatter"
)

// quiet is a handler that leaves everything for later and counts.
type quiet struct {
	met            []Incoming
	received, sent []error
	ended          []Handle
	adverts        []Advert
	revoked        []Advert
	filled         []error
	filledBytes    []uint32
	verdict        Verdict
	dst            []fabric.SGE
}

func (q *quiet) Match(m Incoming) ([]fabric.SGE, Verdict) {
	q.met = append(q.met, m)
	return q.dst, q.verdict
}
func (q *quiet) Received(m Incoming, err error) {
	q.received, q.ended = append(q.received, err), append(q.ended, m.Handle)
}
func (q *quiet) Sent(_ uint64, err error) { q.sent = append(q.sent, err) }
func (q *quiet) Advertised(a Advert)      { q.adverts = append(q.adverts, a) }
func (q *quiet) Revoked(a Advert) bool    { q.revoked = append(q.revoked, a); return true }
func (q *quiet) Filled(_ uint64, x Answer, err error) {
	n := x.Bytes
	q.filled, q.filledBytes = append(q.filled, err), append(q.filledBytes, n)
}

func wait() *quiet { return &quiet{verdict: Later} }

// inject lets side s send a control message that its channel would not.
func (s *side) inject(t *testing.T, k Kind, id ID, arg uint32, payload []byte) {
	require.True(t, s.ch.send(k, id, arg, payload))
	_, err := s.ch.ring.Flush()
	require.NoError(t, err)
}

func oneMessage(pos uint64) []byte {
	d := scatter.Descriptor{
		Messages: []scatter.Message{{Pos: pos, Size: 8}},
		Regions:  []scatter.Region{{Addr: 0x1000, Len: 8, RKey: 1}},
	}
	b, err := d.Append(nil)
	if err != nil {
		panic(err)
	}
	return b
}

// What each side may hear from a peer that does not keep to the rules.
func TestHostileControl(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		play func(t *testing.T, evil *side)
		want error
	}{
		"unknown kind":      {func(t *testing.T, e *side) { e.inject(t, 99, 0, 0, nil) }, ErrMessage},
		"invalid kind":      {func(t *testing.T, e *side) { e.inject(t, KindInvalid, 0, 0, nil) }, ErrMessage},
		"rts beyond slots":  {func(t *testing.T, e *side) { e.inject(t, KindRTS, makeID(2, 1), 0, oneMessage(1)) }, ErrTooMany},
		"rts far beyond":    {func(t *testing.T, e *side) { e.inject(t, KindRTS, makeID(65535, 1), 0, oneMessage(1)) }, ErrTooMany},
		"rts out of turn":   {func(t *testing.T, e *side) { e.inject(t, KindRTS, makeID(0, 2), 0, oneMessage(1)) }, ErrIDReused},
		"rts generation 0":  {func(t *testing.T, e *side) { e.inject(t, KindRTS, makeID(0, 0), 0, oneMessage(1)) }, ErrIDReused},
		"rts with nothing":  {func(t *testing.T, e *side) { e.inject(t, KindRTS, makeID(0, 1), 0, nil) }, scatter.ErrTruncated},
		"rts truncated":     {func(t *testing.T, e *side) { e.inject(t, KindRTS, makeID(0, 1), 0, oneMessage(1)[:39]) }, scatter.ErrTruncated},
		"rts with a tail":   {func(t *testing.T, e *side) { e.inject(t, KindRTS, makeID(0, 1), 0, append(oneMessage(1), 0)) }, ErrMessage},
		"rts beyond bounds": {func(t *testing.T, e *side) { e.inject(t, KindRTS, makeID(0, 1), 0, tooManyRegions()) }, scatter.ErrCount},
		"rts twice": {func(t *testing.T, e *side) {
			e.inject(t, KindRTS, makeID(0, 1), 0, oneMessage(1))
			e.inject(t, KindRTS, makeID(0, 1), 0, oneMessage(1))
		}, ErrIDReused},
		"rts on a slot in use": {func(t *testing.T, e *side) {
			e.inject(t, KindRTS, makeID(0, 1), 0, oneMessage(1))
			e.inject(t, KindRTS, makeID(0, 2), 0, oneMessage(2))
		}, ErrIDReused},
		"fin without transfer": {func(t *testing.T, e *side) { e.inject(t, KindFIN, makeID(1, 2), 0, nil) }, ErrUnknownID},
		"fin beyond slots":     {func(t *testing.T, e *side) { e.inject(t, KindFIN, makeID(7, 1), 0, nil) }, ErrUnknownID},
		"fin generation":       {func(t *testing.T, e *side) { e.inject(t, KindFIN, makeID(0, 2), 0, nil) }, ErrUnknownID},
		"fin status":           {func(t *testing.T, e *side) { e.inject(t, KindFIN, makeID(0, 1), numStatus, nil) }, ErrMessage},
		"fin with payload":     {func(t *testing.T, e *side) { e.inject(t, KindFIN, makeID(0, 1), 0, []byte{1}) }, ErrMessage},
		"fin twice": {func(t *testing.T, e *side) {
			e.inject(t, KindFIN, makeID(0, 1), 0, nil)
			e.inject(t, KindFIN, makeID(0, 1), 0, nil)
		}, ErrUnknownID},

		// The victim has advert 0.1 of 100 bytes outstanding, and offer 1.1 of 100.
		"done unknown":        {func(t *testing.T, e *side) { e.inject(t, KindDone, makeID(1, 1), 0, aDone()) }, ErrUnknownID},
		"done beyond slots":   {func(t *testing.T, e *side) { e.inject(t, KindDone, makeID(9, 1), 0, aDone()) }, ErrUnknownID},
		"done too much":       {func(t *testing.T, e *side) { e.inject(t, KindDone, makeID(0, 1), 101, aDone()) }, ErrSize},
		"done truncated":      {func(t *testing.T, e *side) { e.inject(t, KindDone, makeID(0, 1), 1, aDone()[:11]) }, ErrMessage},
		"decline unknown":     {func(t *testing.T, e *side) { e.inject(t, KindDecline, makeID(0, 2), 0, nil) }, ErrUnknownID},
		"advert beyond slots": {func(t *testing.T, e *side) { e.inject(t, KindAdvert, makeID(2, 1), 0, anAdvert(8)) }, ErrTooMany},
		"advert out of turn":  {func(t *testing.T, e *side) { e.inject(t, KindAdvert, makeID(0, 2), 0, anAdvert(8)) }, ErrIDReused},
		"advert truncated":    {func(t *testing.T, e *side) { e.inject(t, KindAdvert, makeID(0, 1), 0, anAdvert(8)[:advertSize-1]) }, ErrMessage},
		"advert of 4 GiB":     {func(t *testing.T, e *side) { e.inject(t, KindAdvert, makeID(0, 1), 0, anAdvert(1<<32)) }, ErrMessage},
		"advert wraps":        {func(t *testing.T, e *side) { e.inject(t, KindAdvert, makeID(0, 1), 0, anAdvert(1<<64-1)) }, ErrMessage},
		"revoke unknown":      {func(t *testing.T, e *side) { e.inject(t, KindRevoke, makeID(0, 1), 0, nil) }, ErrUnknownID},
		"revoke beyond slots": {func(t *testing.T, e *side) { e.inject(t, KindRevoke, makeID(2, 0), 0, nil) }, ErrUnknownID},
		"revoke twice": {func(t *testing.T, e *side) {
			e.inject(t, KindAdvert, makeID(0, 1), 0, anAdvert(8))
			e.inject(t, KindRevoke, makeID(0, 1), 0, nil)
			e.inject(t, KindRevoke, makeID(0, 1), 0, nil)
		}, ErrUnknownID},
		"ready for an rts":     {func(t *testing.T, e *side) { e.inject(t, KindReady, makeID(0, 1), 0, nil) }, ErrUnknownID},
		"ready unknown":        {func(t *testing.T, e *side) { e.inject(t, KindReady, makeID(9, 1), 0, nil) }, ErrUnknownID},
		"ack before any chunk": {func(t *testing.T, e *side) { e.inject(t, KindAck, makeID(1, 1), 1, nil) }, ErrSize},
		"ack of nothing":       {func(t *testing.T, e *side) { e.inject(t, KindAck, makeID(1, 1), 0, nil) }, ErrSize},
		"ack for an rts":       {func(t *testing.T, e *side) { e.inject(t, KindAck, makeID(0, 1), 1, nil) }, ErrUnknownID},
		"cts unknown":          {func(t *testing.T, e *side) { e.inject(t, KindCTS, makeID(0, 2), 0, aCTS(64)) }, ErrUnknownID},
		"cts beyond slots":     {func(t *testing.T, e *side) { e.inject(t, KindCTS, makeID(9, 1), 0, aCTS(64)) }, ErrUnknownID},
		"cts for an offer":     {func(t *testing.T, e *side) { e.inject(t, KindCTS, makeID(1, 1), 0, aCTS(64)) }, ErrUnknownID},
		"cts truncated":        {func(t *testing.T, e *side) { e.inject(t, KindCTS, makeID(0, 1), 0, aCTS(64)[:ctsSize-1]) }, ErrMessage},
		"cts wraps":            {func(t *testing.T, e *side) { e.inject(t, KindCTS, makeID(0, 1), 0, aCTS(1<<64-1)) }, ErrMessage},
		"cts twice": {func(t *testing.T, e *side) {
			e.inject(t, KindCTS, makeID(0, 1), 0, aCTS(64))
			e.inject(t, KindCTS, makeID(0, 1), 0, aCTS(64))
		}, ErrUnknownID},
		"placed unknown":      {func(t *testing.T, e *side) { e.inject(t, KindPlaced, makeID(0, 1), 0, nil) }, ErrUnknownID},
		"placed beyond slots": {func(t *testing.T, e *side) { e.inject(t, KindPlaced, makeID(9, 1), 0, nil) }, ErrUnknownID},
		"placed with payload": {func(t *testing.T, e *side) { e.inject(t, KindPlaced, makeID(0, 1), 0, []byte{1}) }, ErrMessage},
		"placed without cts": {func(t *testing.T, e *side) {
			e.inject(t, KindRTS, makeID(0, 1), 0, oneMessage(1))
			e.inject(t, KindPlaced, makeID(0, 1), 0, nil)
		}, ErrUnknownID},
		"fin before the chunks": {func(t *testing.T, e *side) { e.inject(t, KindFIN, makeID(1, 1), 0, nil) }, ErrSize},
		"chunk without offer":   {func(t *testing.T, e *side) { e.inject(t, KindChunk, makeID(0, 1), 0, aChunk(1, 8)) }, ErrUnknownID},
		"chunk for an rts": {func(t *testing.T, e *side) {
			e.inject(t, KindRTS, makeID(0, 1), 0, oneMessage(1))
			e.inject(t, KindChunk, makeID(0, 1), 0, aChunk(1, 8))
		}, ErrUnknownID},
		"chunk before ready": {func(t *testing.T, e *side) {
			e.inject(t, KindOffer, makeID(0, 1), 0, anOffer(16))
			e.inject(t, KindChunk, makeID(0, 1), 0, aChunk(1, 8))
		}, ErrUnknownID},
		"offer beyond slots": {func(t *testing.T, e *side) { e.inject(t, KindOffer, makeID(2, 1), 0, anOffer(1)) }, ErrTooMany},
		"offer of nothing":   {func(t *testing.T, e *side) { e.inject(t, KindOffer, makeID(0, 1), 0, anOffer(0)) }, ErrMessage},
		"offer truncated":    {func(t *testing.T, e *side) { e.inject(t, KindOffer, makeID(0, 1), 0, anOffer(1)[:15]) }, ErrMessage},
		"offer form": {func(t *testing.T, e *side) {
			b := anOffer(1)
			b[0] = 2
			e.inject(t, KindOffer, makeID(0, 1), 0, b)
		}, ErrMessage},
		"no meta word": {func(t *testing.T, e *side) {
			_, err := e.ch.ring.Send(eager.Envelope{Kind: uint8(KindFIN), Class: flowctl.Control})
			require.NoError(t, err)
		}, ErrMessage},
		"longer than any message": {func(t *testing.T, e *side) { e.inject(t, KindRTS, makeID(0, 1), 0, make([]byte, 400)) }, ErrMessage},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			o := Options{Transfers: 2, Adverts: 2, Messages: 4, Regions: 4, Ring: eager.Options{Blocks: 16, BlockSize: 128, Control: 4, Every: 4}}
			hg, he := wait(), wait()
			good, evil := pair(t, simLinks(sim.Options{}), hg, he, o, o)
			src := newMemory(t, good.link, 1, 4096)
			// One transfer of the victim is outstanding, in slot 0.
			d := scatter.Descriptor{
				Messages: []scatter.Message{{Size: 64}},
				Regions:  []scatter.Region{{Addr: src.reg.Addr(), Len: 64, RKey: src.reg.Key().RKey}},
			}
			id, res, err := good.ch.Send(&d, 0, 1)
			require.NoError(t, err)
			require.Equal(t, Accepted, res)
			require.Equal(t, makeID(0, 1), id)

			_, res, err = good.ch.SendUnregistered(0, make([]byte, 100), Copy, 0, 2)
			require.NoError(t, err)
			require.Equal(t, Accepted, res)
			_, res, err = good.ch.Advertise(Want{Pos: 5}, fabric.RemoteKey{Addr: src.reg.Addr(), Len: 100, RKey: src.reg.Key().RKey}, 3)
			require.NoError(t, err)
			require.Equal(t, Accepted, res)

			c.play(t, evil)
			for range 3 {
				_ = good.turn()
			}
			err = good.ch.Err()
			require.ErrorIs(t, err, ErrProtocol)
			require.ErrorIs(t, err, c.want)
			var pe *ProtocolError
			require.ErrorAs(t, err, &pe)
			require.NotEmpty(t, pe.Error())
			require.NoError(t, good.ep.Err(), "the endpoint is not the channel's to end")

			// What the peer announced is over; our source is not, the peer may
			// still be reading it.
			require.Len(t, hg.received, len(hg.met))
			for _, err := range hg.received {
				require.True(t, errors.Is(err, ErrProtocol), "%v", err)
			}
			if what == "fin twice" {
				require.NoError(t, hg.sent[0])
			} else {
				// That the peer never saw where the unregistered message lies.
				require.Len(t, hg.sent, 1)
				require.ErrorIs(t, hg.sent[0], ErrProtocol)
			}
			require.Empty(t, hg.filled)
			_, _, err = good.ch.Send(&d, 0, 2)
			require.ErrorIs(t, err, ErrProtocol)
			_, _, err = good.ch.Advertise(Want{Pos: 1}, fabric.RemoteKey{}, 2)
			require.ErrorIs(t, err, ErrProtocol)
			good.ch.Sever(nil)
			require.Len(t, hg.sent, 2)
			require.Len(t, hg.filled, 1)
			require.ErrorIs(t, hg.filled[0], ErrProtocol)
		})
	}
}

func anAdvert(n uint64) []byte {
	return appendAdvert(nil, Want{Pos: 1}, fabric.RemoteKey{Addr: 0x1000, Len: n, RKey: 1}, claimRef{})
}
func aCTS(n uint64) []byte {
	return appendCTS(nil, fabric.RemoteKey{Addr: 0x1000, Len: n, RKey: 1}, claimRef{0x2000, 2})
}
func aDone() []byte { return appendDone(nil, doneNote{1, 2}) }
func anOffer(n uint32) []byte {
	return appendOffer(nil, scatter.Message{Pos: 1, Size: n})
}
func aChunk(addr uint64, n uint32) []byte {
	return appendChunk(nil, scatter.Region{Addr: addr, Len: n, RKey: 1})
}

// Chunks that are more, or larger, than what was agreed.
func TestHostileChunks(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		chunks []scatter.Region
		want   error
	}{
		"beyond the message": {[]scatter.Region{{Addr: 1, Len: 60}, {Addr: 1, Len: 41}}, ErrSize},
		"far beyond":         {[]scatter.Region{{Addr: 1, Len: 1<<32 - 1}}, ErrSize},
		"empty":              {[]scatter.Region{{Addr: 1}}, ErrMessage},
		"wraps":              {[]scatter.Region{{Addr: 1<<64 - 1, Len: 2}}, ErrMessage},
		"more than agreed":   {[]scatter.Region{{Addr: 1, Len: 1}, {Addr: 1, Len: 1}, {Addr: 1, Len: 1}}, ErrTooMany},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			o := Options{Chunks: 2}
			// Requests take a while, so that the chunks are all outstanding.
			hg := &quiet{verdict: Take}
			good, evil := pair(t, simLinks(sim.Options{Caps: sim.CapsLike("tcp")}), hg, wait(), o, o)
			dst := newMemory(t, good.link, 1, 4096)
			hg.dst = []fabric.SGE{fabric.NewSGE(dst.mem[:100], dst.reg.LKey())}
			evil.inject(t, KindOffer, makeID(0, 1), 0, anOffer(100))
			for _, r := range c.chunks {
				evil.inject(t, KindChunk, makeID(0, 1), 0, appendChunk(nil, r))
			}
			_ = good.turn()
			require.ErrorIs(t, good.ch.Err(), ErrProtocol)
			require.ErrorIs(t, good.ch.Err(), c.want)
			require.Len(t, hg.received, 1)
			require.ErrorIs(t, hg.received[0], c.want)
		})
	}
}

// A channel that ends while its own reads and writes are under way keeps their
// memory until they are back, and does not believe them any more.
func TestFailureWithRequestsInFlight(t *testing.T) {
	t.Parallel()
	// The target's poll carries requests out: until then they are in flight.
	ha, hb := &quiet{verdict: Take}, wait()
	a, b := pair(t, simLinks(sim.Options{Caps: sim.CapsLike("tcp")}), ha, hb, Options{}, Options{})
	src, dst := newMemory(t, b.link, 1, 4096), newMemory(t, a.link, 1, 4096)
	ha.dst = []fabric.SGE{fabric.NewSGE(dst.mem[:64], dst.reg.LKey())}
	d := scatter.Descriptor{
		Messages: []scatter.Message{{Size: 64}},
		Regions:  []scatter.Region{{Addr: src.reg.Addr(), Len: 64, RKey: src.reg.Key().RKey}},
	}
	_, _, err := b.ch.Send(&d, 0, 1)
	require.NoError(t, err)
	_, _, err = b.ch.Advertise(Want{Pos: 1}, src.reg.Key(), 2)
	require.NoError(t, err)
	require.NoError(t, b.ch.Flush())
	require.NoError(t, a.turn()) // posts the read
	require.Len(t, ha.adverts, 1)
	_, err = a.ch.Write(ha.adverts[0].ID, 1, 2, ha.dst, 3)
	require.NoError(t, err)
	require.NoError(t, a.turn()) // posts the write
	require.Equal(t, uint64(1), a.ch.Stats().Reads)
	require.Equal(t, uint64(1), a.ch.Stats().Writes)

	b.inject(t, 99, 0, 0, nil)
	for range 5 {
		_ = a.turn()
	}
	require.ErrorIs(t, a.ch.Err(), ErrProtocol)
	require.Empty(t, ha.received, "the read may still write there")
	require.Empty(t, ha.sent, "the write may still read there")
	b.poll()
	a.poll()
	require.Len(t, ha.received, 1)
	require.ErrorIs(t, ha.received[0], ErrProtocol)
	require.Len(t, ha.sent, 1)
	require.ErrorIs(t, ha.sent[0], ErrProtocol)
	require.NoError(t, a.ep.Err())
}

func tooManyRegions() []byte {
	d := scatter.Descriptor{Messages: []scatter.Message{{Pos: 1, Size: 5}}}
	for i := range uint64(5) {
		d.Regions = append(d.Regions, scatter.Region{Addr: 0x1000 * (i + 1), Len: 1})
	}
	b, err := d.Append(nil)
	if err != nil {
		panic(err)
	}
	return b
}

// Handles outlive their messages; using them then is an error, not a mistake.
func TestStaleHandles(t *testing.T) {
	t.Parallel()
	ha, hb := wait(), wait()
	a, b := pair(t, simLinks(sim.Options{}), ha, hb, Options{}, Options{})
	src, dst := newMemory(t, a.link, 1, 4096), newMemory(t, b.link, 1, 4096)
	d := scatter.Descriptor{
		Messages: []scatter.Message{{Size: 64}, {Pos: 64, Size: 8}},
		Regions:  []scatter.Region{{Addr: src.reg.Addr(), Len: 72, RKey: src.reg.Key().RKey}},
	}
	_, _, err := a.ch.Send(&d, 9, 1)
	require.NoError(t, err)
	require.NoError(t, a.ch.Flush())
	require.NoError(t, b.turn())
	require.Len(t, hb.met, 2)
	require.Equal(t, uint32(9), hb.met[0].Tag)
	h0, h1 := hb.met[0].Handle, hb.met[1].Handle
	piece := []fabric.SGE{fabric.NewSGE(dst.mem[:64], dst.reg.LKey())}
	require.ErrorIs(t, b.ch.Accept(makeHandle(h0.id(), 2), piece), ErrHandle)
	require.ErrorIs(t, b.ch.Accept(makeHandle(h0.id()+1<<16, 0), piece), ErrHandle)
	require.ErrorIs(t, b.ch.Accept(makeHandle(makeID(999, 1), 0), piece), ErrHandle)
	require.NoError(t, b.ch.Accept(h0, piece))
	require.ErrorIs(t, b.ch.Accept(h0, piece), ErrHandle)
	ok, err := b.ch.Refuse(h0)
	require.NoError(t, err)
	require.False(t, ok, "it is being fetched")
	require.NoError(t, b.ch.Accept(h1, piece), "the pieces are wrong, which Received tells")
	for range 3 {
		require.NoError(t, b.turn())
		require.NoError(t, a.turn())
	}
	require.ErrorIs(t, hb.received[0], ErrPieces)
	require.NoError(t, hb.received[1])
	_, err = b.ch.Refuse(h1)
	require.ErrorIs(t, err, ErrHandle)
	require.Len(t, ha.sent, 1)
	require.ErrorIs(t, ha.sent[0], ErrRefused)
}

// After a failure, all that the peer had sent is received, however large the control ring has become.
func TestFailureAfterTheRingHasGrown(t *testing.T) {
	t.Parallel()
	const n = 20
	o := Options{Adverts: n, Ring: eager.Options{Blocks: 16, BlockSize: 192, Control: 10, Every: 4, Steps: []eager.Step{{Blocks: 32, BlockSize: 256, Control: 8, Every: 8}}}}
	ha, hb := wait(), wait()
	a, b := pair(t, simLinks(sim.Options{}), ha, hb, o, o)
	dst := newMemory(t, a.link, 1, 64)
	b.ch.ring.Want(32 * 256)
	b.until(t, "the larger ring and the adverts", func() bool {
		if len(hb.adverts) < n {
			_, _, err := a.ch.Advertise(Want{Pos: 1}, dst.reg.Key(), 2)
			require.NoError(t, err)
		}
		require.NoError(t, a.turn())
		moves, _ := b.ch.ring.Moved()
		return moves == 1 && len(hb.adverts) == n
	})
	for _, x := range hb.adverts {
		require.NoError(t, b.ch.Decline(x.ID, 0))
	}
	require.NoError(t, b.ch.Flush())
	b.poll()
	require.Empty(t, ha.filled)
	a.ch.Fail(ErrClosed)
	require.Len(t, ha.filled, n)
}
