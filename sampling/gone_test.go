package sampling

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/sim"
	"github.com/seed33544411/rma/internal/testutil"
)

// A peer that is never there: the first side gives up by its own deadline.
func TestPeerThatNeverCame(t *testing.T) {
	for _, first := range []bool{true, false} {
		o := Options{Mode: Force, Budget: time.Millisecond, StepTimeout: 30 * time.Millisecond}
		a, b := sessions(t, simLinks(sim.Options{}), o, o)
		s := a
		if !first {
			s = b
		}
		_, err := s.Run(testutil.Context(t, 20*time.Second))
		require.ErrorIs(t, err, ErrTimeout)
	}
}

// dying stops working when it has polled n times: its process dies, or the
// network in between does.
type dying struct {
	fabric.Link
	left int
	die  func()
	once sync.Once
}

func (d *dying) Poll(cs []fabric.Completion) int {
	if d.left--; d.left < 0 {
		d.once.Do(d.die)
	}
	return d.Link.Poll(cs)
}

// A peer that dies, or is cut off, at any moment: a typed error in bounded time.
func TestPeerGoneInTheMiddle(t *testing.T) {
	for name, die := range map[string]func(*sim.Link){"killed": (*sim.Link).Kill, "cut off": (*sim.Link).Freeze} {
		for _, victim := range []int{0, 1} {
			for _, after := range []int{0, 1, 3, 30, 300, 1500} {
				t.Run("", func(t *testing.T) {
					t.Parallel()
					caps := sim.CapsLike("tcp")
					o := Options{Mode: Force, Budget: 20 * time.Millisecond, MaxSize: 4096, StepTimeout: 200 * time.Millisecond}
					a, b := sessions(t, simLinks(sim.Options{Caps: caps}), o, o)
					ss := []*Session{a, b}
					v := ss[victim]
					l := v.p.Link.(*sim.Link)
					v.p.Link = &dying{Link: l, left: after, die: func() { die(l) }}
					ctx, cancel := context.WithTimeout(context.Background(), testutil.Limit)
					defer cancel()
					oa, ob := both(ctx, a, b)
					other := []outcome{oa, ob}[1-victim]
					require.NoError(t, ctx.Err(), "it hung")
					require.Error(t, other.err, "%s", name)
					known := false
					for _, k := range []error{ErrTimeout, fabric.ErrPeerGone, fabric.ErrDown, fabric.ErrFlushed} {
						known = known || errors.Is(other.err, k)
					}
					require.True(t, known, "%v", other.err)
				})
			}
		}
	}
}

func TestCancel(t *testing.T) {
	a, _ := sessions(t, simLinks(sim.Options{}), Options{}, Options{})
	ctx, cancel := context.WithCancelCause(context.Background())
	why := errors.New("enough")
	cancel(why)
	_, err := a.Run(ctx)
	require.ErrorIs(t, err, why)
}

// A peer that writes nonsense where balls and messages go.
func TestHostilePeer(t *testing.T) {
	for what, spoil := range map[string]func(b *Session, mem []byte){
		"ball from nowhere":     func(_ *Session, mem []byte) { storeWord(mem, offPing, 77) },
		"number of a message":   func(_ *Session, mem []byte) { storeWord(mem, offTurn, turnWord(2, 2)) },
		"length of a message":   func(_ *Session, mem []byte) { storeWord(mem, offTurn, turnWord(1, mail+1)) },
		"endless message":       func(_ *Session, mem []byte) { storeWord(mem, offTurn, turnWord(1, -1)) },
		"no message":            func(_ *Session, mem []byte) { storeWord(mem, offTurn, turnWord(1, 0)) },
		"message of nothing":    mailed(`{}`),
		"nested":                mailed(`{"half":{"params":[]}}`),
		"negative":              mailed(`{"half":{"params":{"g":-1}}}`),
		"unknown field":         mailed(`{"whole":1}`),
		"two messages":          mailed(`{}{}`),
		"made in another epoch": mailed(`{"made":-5,"half":` + halfJSON() + `}`),
		"time that never was":   mailed(`{"made":999999999999999,"half":` + halfJSON() + `}`),
	} {
		t.Run(what, func(t *testing.T) {
			o := Options{Mode: Force, StepTimeout: 30 * time.Second}
			a, b := sessions(t, simLinks(sim.Options{}), o, o)
			spoil(a, b.mem)
			_, err := b.Run(testutil.Context(t, 60*time.Second))
			require.ErrorIs(t, err, ErrProtocol)
		})
	}
	t.Run("error with escapes", func(t *testing.T) {
		a, b := sessions(t, simLinks(sim.Options{}), Options{Mode: Force}, Options{})
		mailed(`{"error":"\u001b[2Jgone"}`)(a, b.mem)
		_, err := b.Run(testutil.Context(t, 60*time.Second))
		require.ErrorIs(t, err, ErrPeerFailed)
		require.NotContains(t, err.Error(), "\x1b")
	})
}

func mailed(text string) func(*Session, []byte) {
	return func(_ *Session, mem []byte) {
		n := copy(mem[offMail:offMail+mail], text)
		storeWord(mem, offTurn, turnWord(1, n))
	}
}
