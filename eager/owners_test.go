package eager

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/gather"
	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/testutil"
)

// sendThirds sends p with its second third in place, if there is memory for it.
func (s *side) sendThirds(e Envelope, p []byte) (Result, error) {
	s.pool.reclaim(s.ch)
	i, j := len(p)/3, len(p)*2/3
	var claimed []int
	pieces := []gather.Piece{{Data: p[:i]}, {Data: p[i:j]}, {Data: p[j:]}}
	if mem := s.pool.take(p[i:j], &claimed); mem != nil {
		pieces[1] = gather.Piece{Data: mem, LKey: s.pool.reg.LKey(), InPlace: true}
	}
	pos, res, err := s.sendVec(e, pieces)
	s.pool.settle(claimed, pos, err == nil && res == Accepted)
	return res, err
}

// Two goroutines, each the owner of its link, with traffic both ways at once.
func TestTwoOwners(t *testing.T) {
	for link, open := range realLinks {
		for _, mode := range bothModes {
			t.Run(fmt.Sprintf("%s/%v", link, mode), func(t *testing.T) {
				twoOwners(t, open, mode, 600)
			})
		}
	}
}

func twoOwners(t *testing.T, open opener, mode Mode, total int) {
	o := Options{Blocks: 16, BlockSize: 256, Mode: mode, Depth: 64}
	a, b := pair(t, open, o, o)
	errs := make(chan error, 2)
	size := func(i int) int { return i * 37 % 1500 }
	own := func(x *side, out, in uint64) error {
		end := time.Now().Add(testutil.Limit)
		buf, p := make([]byte, 1500), make([]byte, 1500)
		var sp cpu.Spinner
		sent, got := 0, 0
		for sent < total || got < total || x.ch.first != x.ch.staged || x.ch.rx.Due(false) {
			x.poll()
			moved := false
			if sent < total {
				testutil.Fill(p[:size(sent)], out, uint64(sent))
				e := Envelope{Kind: uint8(sent)}
				var res Result
				var err error
				if sent%3 == 0 {
					res, err = x.ch.Send(e, p[:size(sent)])
				} else {
					res, err = x.sendThirds(e, p[:size(sent)])
				}
				if err != nil {
					return err
				}
				if res == Accepted {
					sent++
					moved = true
				}
			}
			h, ok, err := x.ch.Recv(buf)
			if err != nil {
				return err
			}
			if ok {
				if h.Len != size(got) || h.Kind != uint8(got) {
					return fmt.Errorf("message %d: %+v", got, h)
				}
				if err := testutil.Verify(buf[:h.Len], in, uint64(got)); err != nil {
					return fmt.Errorf("message %d: %w", got, err)
				}
				got++
				moved = true
			}
			if moved {
				sp.Reset()
				continue
			}
			if _, err := x.ch.Progress(true); err != nil {
				return err
			}
			if sp.Wait(); time.Now().After(end) {
				return fmt.Errorf("stuck: sent %d, got %d, %+v", sent, got, x.ch.Stats())
			}
		}
		return nil
	}
	// A side that is done goes on polling until the other is: links whose
	// target does the work need it.
	stop := make(chan struct{})
	serve := func(x *side, out, in uint64) {
		errs <- own(x, out, in)
		for {
			select {
			case <-stop:
				errs <- nil
				return
			default:
				x.poll()
				cpu.Yield()
			}
		}
	}
	go serve(a, 1, 2)
	go serve(b, 2, 1)
	err := errors.Join(<-errs, <-errs)
	close(stop)
	<-errs
	<-errs
	require.NoError(t, err)
}
