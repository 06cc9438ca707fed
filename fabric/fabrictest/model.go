package fabrictest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/testutil"
)

var modelCases = []Case{{"Model", model}}

// modelWindow is the size of the memory that one endpoint's script uses; small, so that
// requests overlap.
const modelWindow = 2048

// script is a stream of random requests of one endpoint with their expected results. It
// draws from its own seed only: every link runs the same script.
type script struct {
	rng    *rand.Rand
	c      *conn
	local  fabric.Region // cut into one slot for each request of a batch
	remote fabric.Region
	want   []byte // expected content of the remote window, with every request executed in order
	checks []modelCheck
	reads  [][2]int // remote ranges read since the last fence
}

type modelCheck struct {
	what string
	off  int // in local
	want []byte
}

const (
	modelBatch = 24
	modelSlot  = 1024
)

func (s *script) batch(r *rig) []fabric.WR {
	testutil.Fill(s.local.Bytes(), s.rng.Uint64(), 0)
	s.checks, s.reads = s.checks[:0], s.reads[:0]
	var ws []fabric.WR
	for i := range 1 + s.rng.IntN(modelBatch) {
		w := s.request(i)
		ws = append(ws, w)
	}
	last := &ws[len(ws)-1]
	last.Flags |= fabric.FlagSignaled
	last.ID = r.id()
	return ws
}

// request draws request i of a batch and applies it to the model.
func (s *script) request(i int) fabric.WR {
	base := i * modelSlot
	w := fabric.WR{RKey: s.remote.Key().RKey}
	mem := s.local.Bytes()
	switch k := s.rng.IntN(10); {
	case k < 5, k < 8: // write or read
		w.Op = fabric.OpWrite
		if k >= 5 {
			w.Op = fabric.OpRead
		}
		total := 0
		for range s.rng.IntN(5) * s.rng.IntN(10) {
			n := s.rng.IntN(1 + min(64, modelSlot-total-2))
			total++ // a gap
			w.Local = append(w.Local, sge(s.local, base+total, n))
			total += n
			if total > modelSlot-80 {
				break
			}
		}
		n := int(w.Len())
		off := s.rng.IntN(modelWindow - n + 1)
		w.RemoteAddr = s.remote.Addr() + uint64(off)
		if w.Op == fabric.OpWrite {
			at := off
			for _, p := range w.Local {
				o := int(p.Addr - s.local.Addr())
				at += copy(s.want[at:], mem[o:o+int(p.Len)])
			}
			if n <= 8 && s.rng.IntN(2) == 0 {
				w.Flags |= fabric.FlagInline
			}
			s.fence(&w, off, n)
			return w
		}
		at := off
		for k, p := range w.Local {
			s.checks = append(s.checks, modelCheck{fmt.Sprintf("request %d, read of %d at %d, piece %d", i, n, off, k),
				int(p.Addr - s.local.Addr()), bytes.Clone(s.want[at : at+int(p.Len)])})
			at += int(p.Len)
		}
		s.reads = append(s.reads, [2]int{off, off + n})
	default:
		off := 8 * s.rng.IntN(modelWindow/8)
		old := binary.NativeEndian.Uint64(s.want[off:])
		w.RemoteAddr = s.remote.Addr() + uint64(off)
		w.Local = []fabric.SGE{sge(s.local, base+8, 8)}
		w.Operand = s.rng.Uint64()
		next := old + w.Operand
		w.Op = fabric.OpFetchAdd
		if k == 9 {
			w.Op, w.Compare, next = fabric.OpCompareSwap, old, w.Operand
			if s.rng.IntN(3) == 0 {
				w.Compare, next = ^old, old
			}
		}
		s.fence(&w, off, 8)
		s.checks = append(s.checks, modelCheck{fmt.Sprintf("request %d, %v at %d", i, w.Op, off), base + 8, bytes.Clone(s.want[off : off+8])})
		binary.NativeEndian.PutUint64(s.want[off:], next)
	}
	return w
}

// fence sets FlagFence on w, which changes [off, off+n), if an earlier read might otherwise
// see the change, and at random.
func (s *script) fence(w *fabric.WR, off, n int) {
	need := s.rng.IntN(6) == 0
	for _, rd := range s.reads {
		need = need || off < rd[1] && rd[0] < off+n
	}
	if need {
		w.Flags |= fabric.FlagFence
		s.reads = s.reads[:0]
	}
}

// model runs random scripts on four endpoints, two in each direction, against
// plain slices. Requests of a batch overlap freely at the target.
func model(r *rig) {
	for seed := range uint64(max(r.times(4), 2)) {
		var ss []*script
		for i := range 2 {
			ca, cb := r.pair(fabric.EndpointOptions{Depth: 8 << i})
			for k, c := range []*conn{ca, cb} {
				s := &script{rng: rand.New(rand.NewPCG(seed, uint64(2*i+k))), c: c, want: make([]byte, modelWindow)}
				s.local = c.side.region(modelBatch*modelSlot, fabric.AccessAll)
				s.remote = c.side.other.region(modelWindow, fabric.AccessAll)
				testutil.Fill(s.remote.Bytes(), seed, 0)
				copy(s.want, s.remote.Bytes())
				ss = append(ss, s)
			}
		}
		for round := range r.times(100) {
			open := map[uint64]bool{}
			var lists [4][]fabric.WR
			for i, s := range ss {
				lists[i] = s.batch(r)
				open[lists[i][len(lists[i])-1].ID] = true
			}
			r.until("a batch of the script", func() bool {
				for i, s := range ss {
					if len(lists[i]) > 0 {
						n, err := s.c.ep.Post(lists[i])
						r.must(err, "post")
						lists[i] = lists[i][n:]
					}
				}
				for _, sd := range []*side{r.a, r.b} {
					for _, d := range sd.done {
						if !open[d.ID] || d.Status != fabric.StatusOK {
							r.Fatalf("seed %d, round %d: %+v", seed, round, d)
						}
						delete(open, d.ID)
					}
					sd.done = sd.done[:0]
				}
				return len(open) == 0
			})
			for i, s := range ss {
				for _, c := range s.checks {
					if got := s.local.Bytes()[c.off : c.off+len(c.want)]; !bytes.Equal(got, c.want) {
						r.Fatalf("seed %d, round %d, endpoint %d: %s: got %x, want %x", seed, round, i, c.what, got, c.want)
					}
				}
				if got := s.remote.Bytes(); !bytes.Equal(got, s.want) {
					at := 0
					for got[at] == s.want[at] {
						at++
					}
					r.Fatalf("seed %d, round %d, endpoint %d: target differs from the model first at byte %d", seed, round, i, at)
				}
			}
		}
	}
	r.idle()
}
