package choice

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/seed33544411/rma/fabric/ibv"
	"github.com/seed33544411/rma/internal/bench"
	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/message/pingpong"
	"github.com/seed33544411/rma/internal/offheap"
	"github.com/seed33544411/rma/verbs"
)

// twoSided transfers batches by the send and receive queues of verbs, as the reference that the
// one-sided modes are compared with (logp.Params.SendRecv). It has a queue pair of its own on the
// port of the link that is measured, and registered memory at both ends: no data is copied.
//
//	rank 0  posts a receive for each message, requests the batch ─────►  rank 1
//	        counts receives  ◄──────────── one chain of sends ─────────  sends it
//
// The time is rank 0's, from the first post to the last receive. It belongs to the goroutine that
// measures.
type twoSided struct {
	first bool
	most  uint64 // bytes of one message that both devices carry
	stall time.Duration
	wait  func(n int)

	ctx *verbs.Context
	pd  *verbs.PD
	cq  *verbs.CQ
	qp  *verbs.QP
	mem []byte // the batch, then the request
	mr  *verbs.MR
	wcs [64]verbs.WC

	sizes       []int
	recvs       []verbs.RecvWR // rank 0: of the batch; rank 1: of the request
	sends       []verbs.SendWR // rank 0: the request; rank 1: the batch
	sent, got   int            // completed
	asked, want int            // of these, posted with a completion
}

const (
	// requestSize is the size of the request for a batch: that of a read request, which
	// Limits.ReadRequest is.
	requestSize = 28

	twoSidedTimeout = 18 // 1 s, see verbs.QPAttr.Timeout
	twoSidedRNR     = 12 // 0.64 ms
	twoSidedRetries = 6
)

// twoSidedAddress is what the ranks exchange to connect.
type twoSidedAddress struct {
	GID  verbs.GID `json:"gid"`
	LID  uint16    `json:"lid"`
	QPN  uint32    `json:"qpn"`
	PSN  uint32    `json:"psn"`
	MTU  verbs.MTU `json:"mtu"`
	Most uint64    `json:"most"`
}

// parseTwoSided reads the other rank's address.
func parseTwoSided(b []byte) (a twoSidedAddress, err error) {
	if err := json.Unmarshal(b, &a); err != nil {
		return a, fmt.Errorf("address of the other rank: %w", err)
	}
	if a.GID.IsZero() && a.LID == 0 || a.QPN < 2 || a.QPN > 0xffffff || a.PSN > 0xffffff || !a.MTU.Valid() {
		return a, fmt.Errorf("%w: address of the other rank %+v", ErrGrid, a)
	}
	return a, nil
}

// openTwoSided prepares both ranks for batches that need span bytes (pingpong.Need). It returns
// nil if the link is not verbs.
func openTwoSided(ctx context.Context, k *rank, span int) (s *twoSided, err error) {
	l, ok := k.conn.Link.(*ibv.Link)
	if !ok {
		return nil, nil
	}
	port := l.Port()
	s = &twoSided{first: k.ctl.Rank() == 0, stall: k.req.Stall, wait: bench.Waiter(k.req.Pin)}
	k.onClose(s.close)
	if err = bench.Agree(ctx, k.polling(), s.open(&port, span)); err != nil {
		return nil, err
	}
	mine := twoSidedAddress{GID: port.GID.GID, LID: port.Attr.LID, QPN: s.qp.Num(), PSN: rand.Uint32() & 0xffffff, MTU: port.MTU, Most: uint64(port.Attr.MaxMessage)}
	text, err := json.Marshal(mine)
	if err != nil {
		return nil, err
	}
	text, err = k.exchange(ctx, text)
	if err == nil {
		var theirs twoSidedAddress
		if theirs, err = parseTwoSided(text); err == nil {
			s.most = min(mine.Most, theirs.Most)
			err = s.connect(&mine, &theirs, l.Route(theirs.GID, theirs.LID))
		}
	}
	return s, bench.Agree(ctx, k.polling(), err)
}

func (s *twoSided) open(port *ibv.Port, span int) (err error) {
	if s.ctx, err = verbs.Open(port.Device); err != nil {
		return err
	}
	if s.pd, err = s.ctx.AllocPD(); err != nil {
		return err
	}
	if s.cq, err = s.ctx.CreateCQ(2*(maxN+1), nil); err != nil {
		return err
	}
	s.qp, err = s.pd.CreateQP(verbs.QPOptions{SendCQ: s.cq, MaxSendWR: maxN, MaxRecvWR: maxN, MaxInline: port.Inline})
	if err != nil {
		return err
	}
	if s.mem, err = offheap.Alloc(span+requestSize, offheap.Scratch); err != nil {
		return err
	}
	if s.mr, err = s.pd.Register(s.mem, verbs.AccessLocalWrite); err != nil {
		return err
	}
	if !s.first {
		for i := range s.mem {
			s.mem[i] = twoSidedByte(i)
		}
	}
	return s.qp.ToInit(port.Number, 0, verbs.AccessLocalWrite)
}

func (s *twoSided) connect(mine, theirs *twoSidedAddress, route verbs.AHAttr) error {
	attr := &verbs.QPAttr{
		PathMTU: min(mine.MTU, theirs.MTU), DestQPN: theirs.QPN, RQPSN: theirs.PSN, SQPSN: mine.PSN, MaxReads: 1, MaxReadsDest: 1,
		MinRNRTimer: twoSidedRNR, Timeout: twoSidedTimeout, RetryCount: twoSidedRetries, RNRRetry: twoSidedRetries, AH: route,
	}
	if err := s.qp.ToRTR(attr); err != nil {
		return err
	}
	if err := s.qp.ToRTS(attr); err != nil {
		return err
	}
	request := s.mr.SGE(len(s.mem)-requestSize, requestSize)
	if s.first {
		s.sends = []verbs.SendWR{{Op: verbs.OpSend, SGL: []verbs.SGE{request}, Flags: verbs.SendSignaled}}
		s.inline(&s.sends[0])
		return nil
	}
	s.recvs = []verbs.RecvWR{{SGL: []verbs.SGE{request}}}
	return s.post(s.recvs, nil)
}

// inline sends w inline if it is small enough, as the link does.
func (s *twoSided) inline(w *verbs.SendWR) {
	if n := int(w.SGL[0].Len); n > 0 && n <= s.qp.Cap().MaxInline {
		w.Flags |= verbs.SendInline
	}
}

// close releases what open has created, also after its failure.
func (s *twoSided) close() (err error) {
	if s.qp != nil {
		err = s.qp.Close()
	}
	if s.mr != nil {
		err = errors.Join(err, s.mr.Close())
	}
	if s.mem != nil {
		err = errors.Join(err, offheap.Free(s.mem, offheap.Scratch))
	}
	if s.cq != nil {
		err = errors.Join(err, s.cq.Close())
	}
	if s.pd != nil {
		err = errors.Join(err, s.pd.Close())
	}
	if s.ctx != nil {
		err = errors.Join(err, s.ctx.Close())
	}
	return err
}

// load sets the batch that Play transfers. It reports whether the devices carry its messages.
func (s *twoSided) load(sizes []int) bool {
	s.sizes = append(s.sizes[:0], sizes...)
	if s.first {
		s.recvs = s.recvs[:0]
	} else {
		s.sends = s.sends[:0]
	}
	at := 0
	for _, n := range sizes {
		if uint64(n) > s.most {
			return false
		}
		piece := []verbs.SGE{s.mr.SGE(at, n)}
		if s.first {
			s.recvs = append(s.recvs, verbs.RecvWR{SGL: piece})
		} else {
			s.sends = append(s.sends, verbs.SendWR{Op: verbs.OpSend, SGL: piece})
			s.inline(&s.sends[len(s.sends)-1])
		}
		at += pingpong.Need([]int{n})
	}
	if !s.first {
		s.sends[len(s.sends)-1].Flags |= verbs.SendSignaled
	}
	return true
}

// post posts receives, then sends, of which the last has a completion.
func (s *twoSided) post(recvs []verbs.RecvWR, sends []verbs.SendWR) error {
	n, err := s.qp.PostRecv(recvs)
	if err == nil && n == len(recvs) && len(sends) > 0 {
		s.asked++
		n, err = s.qp.PostSend(sends)
		n += len(recvs) - len(sends)
	}
	if err == nil && n != len(recvs) {
		err = fmt.Errorf("%w: the queues of %d requests are full", ErrGrid, maxN)
	}
	return err
}

// Play transfers the batch len(times) times. Rank 0 stores each time, in ticks.
func (s *twoSided) Play(ctx context.Context, times []int64) error {
	for i := range times {
		if s.first {
			t := cpu.Ticks()
			s.want += len(s.recvs)
			if err := s.post(s.recvs, s.sends); err != nil {
				return err
			}
			if err := s.until(ctx, &s.got, s.want); err != nil {
				return err
			}
			times[i] = cpu.Ticks() - t
		} else {
			s.want++
			if err := s.until(ctx, &s.got, s.want); err != nil {
				return err
			}
			if err := s.post(s.recvs, s.sends); err != nil {
				return err
			}
		}
		if err := s.until(ctx, &s.sent, s.asked); err != nil {
			return err
		}
	}
	return nil
}

// until waits for completions until *count is want.
func (s *twoSided) until(ctx context.Context, count *int, want int) error {
	var end time.Time
	for misses := 1; *count < want; misses++ {
		n, err := s.cq.Poll(s.wcs[:])
		if err != nil {
			return err
		}
		for i := range s.wcs[:n] {
			if err := s.wcs[i].Err(); err != nil {
				return err
			}
			if s.wcs[i].Op == verbs.WCRecv {
				s.got++
			} else {
				s.sent++
			}
		}
		if n > 0 {
			misses = 0
			continue
		}
		s.wait(misses)
		if misses%1024 != 0 {
			continue
		}
		switch now := time.Now(); {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case end.IsZero():
			end = now.Add(s.stall)
		case now.After(end):
			return fmt.Errorf("%w: no completion within %v", pingpong.ErrStalled, s.stall)
		}
	}
	return nil
}

// check transfers the batch once, and checks at rank 0 that its bytes have arrived and no others
// have changed. Both ranks call it.
func (s *twoSided) check(ctx context.Context) error {
	if s.first {
		clear(s.mem[:pingpong.Need(s.sizes)])
	}
	var once [1]int64
	if err := s.Play(ctx, once[:]); err != nil || !s.first {
		return err
	}
	at := 0
	for k, n := range s.sizes {
		next := at + pingpong.Need([]int{n})
		for i := at; i < next; i++ {
			want := byte(0)
			if i < at+n {
				want = twoSidedByte(i)
			}
			if s.mem[i] != want {
				return fmt.Errorf("send/recv: %w: message %d of %d, %d bytes, differs at %d", bench.ErrValidate, k, len(s.sizes), n, i-at)
			}
		}
		at = next
	}
	return nil
}

// twoSidedByte is byte i of what rank 1 sends; no page or packet size divides its period.
func twoSidedByte(i int) byte { return byte(i*7 + i>>8*13 + i>>16*101) }
