package rdv

import (
	"errors"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/testutil"
	"github.com/seed33544411/rma/scatter"
)

const mostPlain = 12000

// sendUnregistered announces a message that is copied or registered chunk by
// chunk.
func (a *app) sendUnregistered() {
	n := a.rng.IntN(mostPlain)
	seq := a.next + 1
	by := Copy
	src := make([]byte, n)
	if a.rng.IntN(2) == 0 {
		by, src = Register, testutil.Scratch(a.t, n+1)[:n]
	}
	testutil.Fill(src, seq, 0)
	token := a.last + 1
	a.sizes[seq] = uint32(n)
	id, res, err := a.s.ch.SendUnregistered(seq, src, by, uint32(token), token)
	if err != nil {
		require.True(a.t, a.failing, "%v", err)
	}
	if err != nil || res != Accepted {
		delete(a.sizes, seq)
		return
	}
	a.count.chunked++
	a.last, a.next = token, seq
	a.sent[token] = &batch{id: id, plain: src, d: scatter.Descriptor{Messages: []scatter.Message{{Pos: seq, Size: uint32(n)}}}}
}

// advertise offers a destination, or takes one back.
func (a *app) advertise() {
	if a.rng.IntN(5) == 0 {
		for token := range a.last {
			if o := a.offers[token+1]; o != nil {
				o.revoked = true
				if err := a.s.ch.Revoke(o.id); err != nil {
					require.True(a.t, a.failing, "%v", err)
				}
				return
			}
		}
	}
	ps := a.allot(a.dst, 1)
	if ps == nil {
		return
	}
	at := ps[0]
	at.n = a.rng.IntN(cellSize - at.off + 1)
	token := a.last + 1
	key := a.dst.reg.Key()
	key.Addr, key.Len = a.dst.addr(a.dst.cell(at.cell))+uint64(at.off), uint64(at.n)
	id, res, err := a.s.ch.Advertise(Want{Pos: token, Tag: uint32(token) + 1, Note: uint32(token) + 2}, key, token)
	if err != nil {
		require.True(a.t, a.failing, "%v", err)
	}
	if err != nil || res != Accepted {
		a.release(a.dst, ps)
		return
	}
	a.last = token
	a.offers[token] = &promise{id: id, pos: token, at: at}
}

func (a *app) Advertised(ad Advert) { a.open = append(a.open, ad) }

func (a *app) Revoked(ad Advert) bool {
	if a.t.Failed() {
		return true
	}
	for i := range a.open {
		if a.open[i] == ad {
			a.open = append(a.open[:i], a.open[i+1:]...)
			a.spurned[ad.Pos] = true
			return true
		}
	}
	require.Fail(a.t, "an advert revoked that was not open", "%+v", ad)
	return true
}

// answer writes to an advert of the peer, or declines it.
func (a *app) answer() {
	if len(a.open) == 0 {
		return
	}
	k := a.rng.IntN(len(a.open))
	ad := a.open[k]
	gone := func() { a.open = append(a.open[:k], a.open[k+1:]...) }
	if a.rng.IntN(4) == 0 {
		gone()
		a.spurned[ad.Pos] = true
		if err := a.s.ch.Decline(ad.ID, ad.Note); err != nil {
			require.True(a.t, a.failing, "%v", err)
		}
		return
	}
	n := a.rng.IntN(int(ad.Len) + 1)
	src := a.allot(a.src, n)
	if n > 0 && src == nil {
		return
	}
	var list []fabric.SGE
	var off uint64
	for _, p := range src {
		b := a.src.cell(p.cell)[p.off:][:p.n]
		testutil.Fill(b, ad.Pos, off)
		off += uint64(p.n)
		list = append(list, fabric.NewSGE(b, a.src.reg.LKey()))
	}
	if a.rng.IntN(8) == 0 && n > 0 {
		whole := fabric.SGE{Addr: list[0].Addr, Len: ad.Len + 1, LKey: list[0].LKey}
		_, err := a.s.ch.Write(ad.ID, ad.Pos+7, ad.Tag, []fabric.SGE{whole}, 0)
		require.Error(a.t, err)
	}
	token := a.last + 1
	a.sent[token] = &batch{src: src, write: true}
	a.written[ad.Pos] = uint32(n)
	res, err := a.s.ch.Write(ad.ID, ad.Pos+7, ad.Tag, list, token)
	if err != nil {
		require.True(a.t, a.failing, "%v", err)
	}
	if err != nil || res != Accepted {
		if a.sent[token] != nil { // an empty one may have ended
			delete(a.sent, token)
			delete(a.written, ad.Pos)
			a.release(a.src, src)
			return
		}
	}
	a.last = token
	gone()
}

// Filled checks what the peer made of an advert.
func (a *app) Filled(token uint64, x Answer, err error) {
	n := x.Bytes
	if a.t.Failed() {
		return
	}
	o := a.offers[token]
	require.NotNil(a.t, o, "advert %d is not outstanding", token)
	delete(a.offers, token)
	a.ended[token] = err
	cell := a.dst.cell(o.at.cell)
	base := uint64(o.at.cell * a.dst.size)
	from, to := o.at.off, o.at.off
	switch {
	case err == nil:
		want, ok := a.peer.written[o.pos]
		require.True(a.t, ok, "advert %d was not written", o.pos)
		require.Equal(a.t, Answer{Bytes: want, Pos: o.pos + 7, Tag: uint32(o.pos) + 1}, x)
		to += int(n)
		require.NoError(a.t, testutil.Verify(cell[from:to], o.pos, 0), "advert %d", o.pos)
		a.count.filled++
	case errors.Is(err, ErrDeclined):
		require.True(a.t, a.peer.spurned[o.pos])
		require.Equal(a.t, Answer{Why: uint32(o.pos) + 2}, x)
	case errors.Is(err, ErrCancelled):
		require.True(a.t, a.peer.spurned[o.pos])
		require.True(a.t, o.revoked)
	default:
		require.True(a.t, a.failing, "%v", err)
		to += o.at.n // whatever was written before the failure
	}
	require.NoError(a.t, testutil.Verify(cell[:from], canary, base))
	require.NoError(a.t, testutil.Verify(cell[to:], canary, base+uint64(to)))
	a.release(a.dst, []piece{o.at})
}
