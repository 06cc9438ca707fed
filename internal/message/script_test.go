package message

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/eager"
	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/sim"
	"github.com/seed33544411/rma/internal/testutil"
	"github.com/seed33544411/rma/rdv"
)

// plain is a message as the model knows it.
type plain struct {
	tag  uint32
	size int
	out  *Out
	note note
}

// receipt is a receive as the model knows it.
type receipt struct {
	in     In
	note   note
	got    []byte // by Use
	used   int
	shared bool // on the list for several channels
}

// player sends and receives at random, and remembers.
type player struct {
	t      *testing.T
	rng    *rand.Rand
	s      *side
	seed   uint64
	big    int
	use    int // one receive in so many uses messages in place
	at     int // of registered memory
	sent   []*plain
	recv   []*receipt
	shared *Shared
}

const scriptMem = 8 << 20

func (p *player) size() int {
	switch p.rng.IntN(10) {
	case 0:
		return 0
	case 1, 2, 3, 4, 5:
		return p.rng.IntN(200)
	case 6, 7:
		return p.rng.IntN(5000)
	case 8:
		return p.rng.IntN(p.big/4 + 1)
	}
	return p.rng.IntN(p.big + 1)
}

// memory is n bytes, registered half of the time.
func (p *player) memory(n int) (b []byte, lkey, rkey uint32, registered bool) {
	if p.rng.IntN(2) == 0 || p.at+n > scriptMem {
		return make([]byte, n), 0, 0, false
	}
	b = p.s.reg.Bytes()[p.at:][:n:n]
	if p.at += n; p.rng.IntN(2) == 0 {
		p.at += p.rng.IntN(100) // else the next one is joined
	}
	return b, p.s.reg.LKey(), p.s.reg.Key().RKey, true
}

func (p *player) send() {
	for range 1 + p.rng.IntN(12) {
		m := &plain{tag: p.rng.Uint32N(3), size: p.size()}
		if p.rng.IntN(20) == 0 {
			m.tag = LibraryTags - 1
		}
		m.out = &Out{Tag: m.tag, Urgent: p.rng.IntN(10) == 0, Done: &m.note}
		m.out.Data, m.out.LKey, m.out.RKey, m.out.Registered = p.memory(m.size)
		data := m.out.Data
		testutil.Fill(data, p.seed, uint64(len(p.sent)))
		m.note.after = func() {
			clear(data) // it is ours again
			data = nil
			require.NoError(p.t, m.note.err)
			require.Equal(p.t, m.size, m.note.size)
		}
		p.sent = append(p.sent, m)
		p.s.ch.Send(m.out)
	}
}

func (p *player) post(in In) {
	r := &receipt{in: in}
	r.in.Done = &r.note
	if p.rng.IntN(p.use) == 0 {
		r.in.Use = func(tag uint32, parts [][]byte) {
			r.used++
			for _, b := range parts {
				r.got = append(r.got, b...)
			}
		}
	}
	buf := r.in.Buf
	r.note.after = func() {
		if r.in.Use == nil && r.used == 0 && r.note.err == nil {
			r.got = append([]byte{}, buf[:r.note.size]...)
		}
		buf = nil // the scripts of all modes together hold much
	}
	p.recv = append(p.recv, r)
	r.in.Order = p.shared.Order()
	if r.shared = p.rng.IntN(5) == 0; !r.shared {
		p.s.ch.Recv(&r.in)
	} else if !p.s.ch.Offer(&r.in) {
		p.shared.Post(&r.in)
	}
}

// cancel withdraws one of the last receives.
func (p *player) cancel() {
	if len(p.recv) == 0 {
		return
	}
	r := p.recv[len(p.recv)-1-p.rng.IntN(min(10, len(p.recv)))]
	switch {
	case r.note.n > 0:
	case !r.shared:
		p.s.ch.Cancel(&r.in)
	case p.shared.Cancel(&r.in):
		r.note.Complete(0, 0, ErrCanceled)
	}
}

// uses checks that memory of messages and receives that have not ended is in use.
func (p *player) uses() {
	uses := func(b []byte) bool {
		lo := fabric.Addr(b) + uint64(len(b)) - 1
		return len(b) == 0 || p.s.ch.Uses(lo, lo+1) || p.shared.Uses(lo, lo+1)
	}
	for i, m := range p.sent[max(len(p.sent)-20, 0):] {
		require.True(p.t, m.note.n > 0 || uses(m.out.Data), "message %d of the last", i)
	}
	for i, r := range p.recv[max(len(p.recv)-20, 0):] {
		require.True(p.t, r.note.n > 0 || uses(r.in.Buf), "receive %d of the last", i)
	}
	require.False(p.t, p.s.ch.Uses(0, 1))
}

func (p *player) receive() {
	for range 1 + p.rng.IntN(8) {
		in := In{Tag: p.rng.Uint32N(3), Any: p.rng.IntN(2) == 0}
		n := p.big
		if p.rng.IntN(8) == 0 {
			n = p.size() // too short, perhaps
		}
		in.Buf, in.LKey, in.RKey, in.Registered = p.memory(n)
		in.Remote = in.Registered && p.rng.IntN(4) > 0
		p.post(in)
	}
}

// check compares what receives got with the reference: receives in their
// order, each given the first message in order that it takes. It returns how
// many messages no receive got.
func (p *player) check(peer *player) (left int) {
	taken := make([]bool, len(peer.sent))
	for i, r := range p.recv {
		if errors.Is(r.note.err, ErrCanceled) {
			require.Equal(p.t, 1, r.note.n, "receive %d", i)
			continue // as if it had not been
		}
		k := 0
		for k < len(peer.sent) && (taken[k] || !(r.in.Any || r.in.Tag == peer.sent[k].tag)) {
			k++
		}
		if k == len(peer.sent) {
			require.Zero(p.t, r.note.n, "receive %d ended with nothing to receive: %v", i, r.note.err)
			continue
		}
		m := peer.sent[k]
		require.LessOrEqual(p.t, r.note.n, 1, "receive %d", i)
		require.Equal(p.t, 1, r.note.n, "receive %d did not end; message %d, %d bytes, tag %d", i, k, m.size, m.tag)
		require.Equal(p.t, m.tag, r.note.tag, "receive %d", i)
		if errors.Is(r.note.err, ErrShortBuffer) {
			continue // stays
		}
		require.NoError(p.t, r.note.err)
		taken[k] = true
		require.Equal(p.t, m.size, r.note.size, "receive %d, message %d", i, k)
		require.Equal(p.t, testutil.Payload(m.size, peer.seed, uint64(k)), append([]byte{}, r.got...), "receive %d, message %d", i, k)
	}
	for _, t := range taken {
		if !t {
			left++
		}
	}
	return left
}

func (p *player) unfinished() (n int) {
	for _, m := range p.sent {
		if m.note.n == 0 {
			n++
		}
	}
	return n
}

func randomOptions(rng *rand.Rand) Options {
	o := Options{
		Ring:       eager.Options{Blocks: 1 << (4 + rng.IntN(3)), BlockSize: 1 << (9 + rng.IntN(5))},
		Rendezvous: rdv.Options{Transfers: 1 + rng.IntN(16), Messages: 2 + rng.IntN(60), Regions: 2 + rng.IntN(60), Chunk: 1 << (12 + rng.IntN(9))},
		Batch:      1 + rng.IntN(100),
		IDTag:      3,
	}
	o.Unexpected = []int{-1, 500, 20000, 1 << 20}[rng.IntN(4)]
	o.InPlace = []int{1, 100, 512}[rng.IntN(3)]
	o.Adverts = 1 + rng.IntN(16)
	o.Pinned = []int64{-1, 1000, 100000, 0}[rng.IntN(4)]
	if rng.IntN(2) == 0 { // rings that follow the traffic
		o.Ring, o.Rendezvous.Ring, o.Rings = eager.Options{}, eager.Options{}, eager.NewBudget(1<<(14+rng.IntN(10)))
		o.Rendezvous.Messages, o.Rendezvous.Regions = min(o.Rendezvous.Messages, 40), min(o.Rendezvous.Regions, 40)
	}
	return o
}

// first is how a script treats receives that are there before their message.
type first int

const (
	never  first = iota // nobody advertises
	guess               // those that are likely to be used
	always              // all, however small
)

var firsts = map[string]first{"read": never, "guess": guess, "first": always}

// script plays messages both ways at random and drains at the end.
func script(t *testing.T, open opener, seed uint64, policy string, how first, steps, big int) (modes [3]uint64, written, late uint64) {
	rng := rand.New(rand.NewPCG(seed, 31))
	oa, ob := randomOptions(rng), randomOptions(rng)
	oa.Policy, ob.Policy = policies[policy], policies[policy]
	atLeast, from := 1+rng.IntN(2000), 1+rng.IntN(5000)
	if how == never {
		oa.Adverts, ob.Adverts = -1, -1
	}
	oa.Shared, ob.Shared = &Shared{}, &Shared{}
	sa, sb := pair(t, open, scriptMem, oa, ob)
	if how == always {
		for _, s := range []*side{sa, sb} {
			s.ch.advertiseFrom, s.ch.advertisePrivate, s.ch.model.writeFrom, s.ch.advertised.outcomes.always, s.ch.pins.most = atLeast, atLeast, from, true, 1<<30
		}
	}
	a := &player{t: t, rng: rng, s: sa, shared: oa.Shared, seed: seed*2 + 1, big: big, use: 4}
	b := &player{t: t, rng: rng, s: sb, shared: ob.Shared, seed: seed*2 + 2, big: big, use: 4}
	if how == always {
		a.use, b.use = 50, 50 // those behind it cannot be advertised
	}
	turn := func() {
		require.NoError(t, sa.turn())
		require.NoError(t, sb.turn())
	}
	for range steps {
		p := a
		if rng.IntN(2) == 0 {
			p = b
		}
		switch rng.IntN(7) {
		case 6:
			p.cancel()
		case 0:
			for range rng.IntN(1 + int(how)/2*60) { // adverts are there before the message
				turn()
			}
			p.send()
		case 1:
			p.receive()
			if how == always { // more often before the messages
				p.receive()
				p.receive()
			}
		default:
			require.NoError(t, p.s.turn())
		}
		if rng.IntN(8) == 0 {
			p.uses()
		}
	}
	end := time.Now().Add(testutil.Limit)
	for d := [2]*player{a, b}; ; {
		waiting := 0
		for i, p := range d {
			peer := d[1-i]
			for p.outstanding() < min(len(peer.sent)-p.ended(), 64) {
				p.post(In{Any: true, Buf: make([]byte, big)})
			}
			waiting += len(peer.sent) - p.ended() + p.unfinished()
		}
		if waiting == 0 {
			break
		}
		turn()

		require.True(t, time.Now().Before(end), "a: %d of %d received, %d unfinished, %+v\nb: %d of %d, %d, %+v",
			a.ended(), len(b.sent), a.unfinished(), sa.ch.Stats(), b.ended(), len(a.sent), b.unfinished(), sb.ch.Stats())
	}
	require.Zero(t, a.check(b))
	require.Zero(t, b.check(a))
	for range 50 {
		turn()
	}
	require.Zero(t, a.check(b), "later")
	for _, p := range []*player{a, b} {
		for k, m := range p.sent {
			require.Equal(t, 1, m.note.n, "message %d", k)
		}
	}
	for _, s := range []Stats{sa.ch.Stats(), sb.ch.Stats()} {
		for i := range modes {
			modes[i] += s.Messages[i]
		}
		written += s.Written
		late += s.LateAdverts
	}
	if how == never {
		require.Zero(t, written)
	}
	return modes, written, late
}

// ended counts messages that some receive got.
func (p *player) ended() (n int) {
	for _, r := range p.recv {
		if r.note.n > 0 && r.note.err == nil {
			n++
		}
	}
	return n
}

// outstanding counts receives for any tag that have not ended.
func (p *player) outstanding() (n int) {
	for _, r := range p.recv {
		if r.note.n == 0 && r.in.Any && len(r.in.Buf) >= p.big {
			n++
		}
	}
	return n
}

// The same random script gives the same messages in the same order whatever
// the mode, the link and its faults.
func TestScripts(t *testing.T) {
	nets := map[string]sim.Options{
		"plain":  {},
		"slow":   {MaxDelay: 20, MaxCompletionDelay: 30, QueueFull: 0.3, Pieces: 4, Overtake: 0.3},
		"as ibv": {Caps: sim.CapsLike("ibv"), MaxDelay: 5, MaxCompletionDelay: 5, QueueFull: 0.1, Pieces: 3},
		"as tcp": {Caps: sim.CapsLike("tcp"), MaxDelay: 3, QueueFull: 0.05},
	}
	for net, o := range nets {
		for policy := range policies {
			t.Run(net+"/"+policy, func(t *testing.T) {
				t.Parallel()
				for seed := range uint64(4) {
					o := o
					o.Seed = seed
					for _, how := range firsts {
						if how == guess && seed%2 == 1 {
							continue // as never, but for large messages
						}
						m, _, _ := script(t, simLinks(o), seed, policy, how, 250, 40000)
						require.Positive(t, m[0]+m[1]+m[2])
					}
				}
			})
		}
	}
}

// Every mode is used when it is forced, and the model uses more than one.
func TestModesAreUsed(t *testing.T) {
	t.Parallel()
	for policy, p := range policies {
		var m [3]uint64
		for seed := range uint64(4) {
			one, _, _ := script(t, simLinks(sim.Options{Seed: seed}), 9+seed, policy, never, 400, 40000)
			for i := range m {
				m[i] += one[i]
			}
		}
		t.Logf("%s: %v", policy, m)
		if p.Forced {
			require.Greater(t, m[p.Mode], (m[0]+m[1]+m[2])/2, policy)
			continue
		}
		for i, n := range m {
			require.Positive(t, n, "%s: mode %d", policy, i)
		}
	}
}

func TestScriptsOverRealLinks(t *testing.T) {
	for link, open := range realLinks {
		for policy := range policies {
			for name, how := range firsts {
				t.Run(fmt.Sprintf("%s/%s/%s", link, policy, name), func(t *testing.T) {
					t.Parallel()
					script(t, open, 77, policy, how, 300-int(how)*90, 300000) // receives of 300 KB pile up
				})
			}
		}
	}
}
