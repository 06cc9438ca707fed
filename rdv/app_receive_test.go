package rdv

import (
	"errors"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/testutil"
)

// Match gives a random answer.
func (a *app) Match(m Incoming) ([]fabric.SGE, Verdict) {
	want, known := a.peer.sizes[m.Pos]
	require.True(a.t, known, "message %d was never sent", m.Pos)
	require.Equal(a.t, want, m.Size)
	_, seen := a.results[m.Pos]
	require.False(a.t, seen, "message %d twice", m.Pos)
	switch a.rng.IntN(8) {
	case 0:
		a.results[m.Pos] = refused
		a.count.refused++
		return nil, Refuse
	case 1, 2, 3:
		a.later = append(a.later, inbound{m: m})
		return nil, Later
	}
	in := inbound{m, a.allot(a.dst, int(m.Size))}
	if m.Size > 0 && in.dst == nil {
		a.later = append(a.later, in)
		return nil, Later
	}
	a.taken[m.Handle] = in
	return a.sges(in.dst), Take
}

func (a *app) sges(ps []piece) []fabric.SGE {
	var out []fabric.SGE
	for _, p := range ps {
		out = append(out, fabric.NewSGE(a.dst.cell(p.cell)[p.off:][:p.n], a.dst.reg.LKey()))
	}
	return out
}

// acceptOne gives a message of the later list its destination, or refuses it.
func (a *app) acceptOne() {
	if len(a.later) == 0 {
		return
	}
	k := a.rng.IntN(len(a.later))
	in := a.later[k]
	if a.rng.IntN(8) == 0 {
		ok, err := a.s.ch.Refuse(in.m.Handle)
		if err != nil {
			require.True(a.t, a.failing, "%v", err)
			return
		}
		require.True(a.t, ok)
		a.unlist(in.m.Handle)
		a.results[in.m.Pos] = refused
		a.count.refused++
		return
	}
	in.dst = a.allot(a.dst, int(in.m.Size))
	if in.m.Size > 0 && in.dst == nil {
		return
	}
	// Empty messages may end inside Accept.
	a.unlist(in.m.Handle)
	a.taken[in.m.Handle] = in
	if err := a.s.ch.Accept(in.m.Handle, a.sges(in.dst)); err != nil {
		require.True(a.t, a.failing, "%v", err)
		if _, still := a.taken[in.m.Handle]; still {
			delete(a.taken, in.m.Handle)
			a.release(a.dst, in.dst)
			in.dst = nil
			a.later = append(a.later, in)
		}
	}
}

func (a *app) unlist(h Handle) (in inbound, ok bool) {
	for i := range a.later {
		if a.later[i].m.Handle == h {
			in = a.later[i]
			a.later = append(a.later[:i], a.later[i+1:]...)
			return in, true
		}
	}
	return in, false
}

// Received checks a message that is over.
func (a *app) Received(m Incoming, err error) {
	if a.t.Failed() {
		return // hanging up
	}
	_, seen := a.results[m.Pos]
	require.False(a.t, seen, "message %d ended twice", m.Pos)
	in, ok := a.taken[m.Handle]
	if ok {
		delete(a.taken, m.Handle)
	} else {
		in, ok = a.unlist(m.Handle)
		require.Error(a.t, err, "message %d was never taken", m.Pos)
	}
	require.True(a.t, ok, "message %d is unknown", m.Pos)
	require.Equal(a.t, in.m, m)
	switch {
	case err == nil:
		a.results[m.Pos] = got
		a.count.received++
		var off uint64
		for _, p := range in.dst {
			cell := a.dst.cell(p.cell)
			require.NoError(a.t, testutil.Verify(cell[p.off:][:p.n], m.Pos, off), "message %d", m.Pos)
			off += uint64(p.n)
			base := uint64(p.cell * a.dst.size)
			require.NoError(a.t, testutil.Verify(cell[:p.off], canary, base))
			require.NoError(a.t, testutil.Verify(cell[p.off+p.n:], canary, base+uint64(p.off+p.n)))
		}
	default:
		require.True(a.t, a.failing, "%v", err)
		a.results[m.Pos] = failed
		a.count.failed++
	}
	a.release(a.dst, in.dst)
}

// Sent checks a transfer that is over against what the peer says.
func (a *app) Sent(token uint64, err error) {
	if a.t.Failed() {
		return
	}
	b := a.sent[token]
	require.NotNil(a.t, b, "token %d is not outstanding", token)
	delete(a.sent, token)
	testutil.Fill(b.plain, canary, 1) // ours again
	a.ended[token] = err
	a.count.sent++
	var bad int
	for _, m := range b.d.Messages {
		switch r := a.peer.results[m.Pos]; {
		case r == got:
		case r == 0 && a.s.ch.Stats().Carried > a.carried: // the peer has not heard yet
		case r == refused:
			bad++
		default:
			require.True(a.t, a.failing, "message %d has no result", m.Pos)
		}
	}
	switch {
	case err == nil:
		require.Zero(a.t, bad)
	case errors.Is(err, ErrRefused):
		require.Positive(a.t, bad)
	default:
		require.True(a.t, a.failing, "%v", err)
	}
	a.carried = a.s.ch.Stats().Carried
	a.release(a.src, b.src)
}

// Destination lets the peer write messages of one piece.
func (a *app) Destination(h Handle) (k fabric.RemoteKey, ok bool) {
	in := a.taken[h]
	if len(in.dst) != 1 {
		return k, false
	}
	at := a.dst.cell(in.dst[0].cell)[in.dst[0].off:]
	return fabric.RemoteKey{Addr: a.dst.addr(at), Len: uint64(in.m.Size), RKey: a.dst.reg.Key().RKey}, true
}

// Source returns the memory of transfers of one piece.
func (a *app) Source(token uint64) (s fabric.SGE, rkey uint32, ok bool) {
	b := a.sent[token]
	if b == nil || len(b.src) != 1 {
		return s, 0, false
	}
	p := b.src[0]
	return fabric.NewSGE(a.src.cell(p.cell)[p.off:][:p.n], a.src.reg.LKey()), a.src.reg.Key().RKey, true
}

// Into returns the memory of adverts.
func (a *app) Into(token uint64, n uint32) (s fabric.SGE, ok bool) {
	p := a.offers[token].at
	return fabric.NewSGE(a.dst.cell(p.cell)[p.off:][:n], a.dst.reg.LKey()), true
}
