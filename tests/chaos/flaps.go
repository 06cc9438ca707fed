//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/internal/testutil"
)

// Figures of lost rails.
var (
	lossToUse  = figure{"rail lost to back in use", time.Second, endLimit}
	acrossLoss = figure{"put, fetch-add and get across a loss", 0, tellLimit}
)

// railNet is the second byte of the addresses of rails: 127.railNet.RANK.RAIL+1, on the loopback
// interface.
const railNet = 77

// railAddr returns the address of a rail of a rank.
func railAddr(rank, rail int) string { return fmt.Sprintf("127.%d.%d.%d", railNet, rank, rail+1) }

// flaps shuts sockets of rails down, rail 0 included, on either side, in either direction and while
// they are connected, also of several rails at once, beside puts, gets and fetch-adds that are divided
// over the rails, and operations that rail 0 carries. Nothing fails, is lost or doubled, and all rails
// come back into use.
func flaps(ctx context.Context, r *round) {
	rails := pick(r, 1, 2, 2, 3)
	s := jobSpec{Ranks: 2, Fabric: "tcp", Root: "unix", Wrap: func(rank int, argv []string) []string {
		var list []string
		for i := range rails {
			list = append(list, railAddr(rank, i+1))
		}
		return append([]string{"env", "RMA_TCP_BIND=" + railAddr(rank, 0), "RMA_RAILS=" + strings.Join(list, ",")}, argv...)
	}}
	j := beginRails(r, s)
	if j == nil {
		return
	}
	defer j.kill()
	cuts := 60
	if r.quick {
		cuts = 10
	}
	for range cuts {
		var how []string
		for _, rail := range some(r, 1+r.IntN(2), []int{0, 1, 2, 3}[:rails+1]) {
			how = append(how, fmt.Sprint(rail), fmt.Sprint(pick(r, unix.SHUT_RDWR, unix.SHUT_RDWR, unix.SHUT_RD, unix.SHUT_WR)))
		}
		p := j.procs[r.IntN(2)]
		_, _ = fmt.Fprintf(p.in, "cut %s\n", strings.Join(how, " "))
		if r.IntN(4) > 0 && !wait(ctx, r.about(80*time.Millisecond)) {
			return
		}
	}
	railsKept(r, j, lossToUse)
}

// beginRails begins a job with rails, whose work is what is divided over them, and what rail 0 carries. It
// returns nil if not all rails are in use soon.
func beginRails(r *round, s jobSpec) *job {
	ops := append(some(r, r.IntN(3), []string{"swap", "acc", "signal", "recv", "any", "batch"}), "rails")
	s.Work = work{Ops: ops, Seed: r.Uint64(), Max: 1 << (19 + r.IntN(4))}
	j := begin(r, s)
	if j != nil && !settled(r, j) {
		j.kill()
		return nil
	}
	return j
}

// railsKept ends a job whose rails are back.
func railsKept(r *round, j *job, back figure) {
	railsBack(r, j, back, acrossLoss)
	j.finish(r)
}

// railsBack waits until all rails are in use again, and checks that nothing has failed. back is the
// figure of rails that came back, across that of operations meanwhile.
func railsBack(r *round, j *job, back, across figure) bool {
	all := settled(r, j)
	all = noneFailed(r, j, "beside flaps") && all
	for _, p := range j.procs {
		for _, e := range p.find(is("back")) {
			r.measure(back, e.At)
		}
		for _, e := range p.find(is("across")) {
			r.measure(across, e.At)
		}
	}
	return all
}

// settled waits until each rank has all rails, and uses them again. Otherwise it records a fault.
func settled(r *round, j *job) bool {
	before := map[*proc]int{}
	for _, p := range j.procs {
		before[p] = len(p.find(is("settled")))
		_, _ = fmt.Fprintln(p.in, "settle")
	}
	for _, p := range j.procs {
		if r.failed(p.await(endLimit, before[p]+1, "all rails are in use", is("settled"))) {
			for _, p := range j.procs {
				for _, e := range p.find(is("late")) {
					r.fault("rank %d has these rails: %s", p.rank, e.Text)
				}
			}
			return false
		}
	}
	return true
}

// railWatch is what a rank knows of the rails to the other one.
type railWatch struct {
	lost   atomic.Int64    // losses
	downs  atomic.Int64    // times that an interface went down
	down   [4]atomic.Bool  // it is
	since  [4]atomic.Int64 // of the first loss since the rail was last used, as now; 0: it is in use
	settle atomic.Int64    // times that the campaign has asked
	before []rma.RailStats // of the line
	told   int64           // answers, of the line
	late   time.Duration   // when it says why there is no answer, as now
	tcp    bool            // tcp carries rail 0 in the place of verbs, as the line has said
}

// isDown reports whether an interface of a rail is down.
func (w *railWatch) isDown() bool {
	return w.down[0].Load() || w.down[1].Load() || w.down[2].Load() || w.down[3].Load()
}

const (
	railsLost    = "rails lost" // the count of losses
	railCarried  = "carried on" // the events of a line whose rail 0 tcp carries, and verbs again
	railReturned = "returned"
)

// watchRails counts losses until the end.
func (k *rank) watchRails() {
	for e := range rma.WatchRails(k.ctx, k.eng) {
		if e.Up {
			continue
		}
		k.say(event{Ev: "count", Op: railsLost, N: 1, Text: fmt.Sprint(e.Rail)})
		k.railWatch.lost.Add(1)
		k.railWatch.since[e.Rail].CompareAndSwap(0, int64(now()))
	}
}

// changed notes that the interface of a rail is down, or up again: what is still lost counts from then.
func (w *railWatch) changed(rail string, up bool) {
	i, _ := strconv.Atoi(rail)
	if !up {
		if !w.isDown() {
			w.downs.Add(1)
		}
		w.down[i].Store(true)
		return
	}
	w.down[i].Store(false)
	if at := w.since[i].Load(); at != 0 {
		w.since[i].CompareAndSwap(at, int64(now()))
	}
}

// rails puts, adds and gets without waiting in between, and looks at the rails.
func (l *line) rails(i uint64) error {
	w := &l.railWatch
	if i == 0 {
		l.tasks.Go(l.watchRails)
	}
	most := l.Max / 4
	n := 1 + l.IntN(most)
	off := l.p.Rank() * l.slot()
	src, dst := l.src.Bytes()[off:off+n], l.src.Bytes()[off+most:off+most+n]
	testutil.Fill(src, pattern(l.eng.Rank(), i), 0)
	clear(dst)
	lost, downs, start := w.lost.Load(), w.downs.Load(), now()
	cut := w.isDown()
	put := l.p.Put(l.at(l.area(0)), l.src.Slice(off, n))
	add := l.p.FetchAdd(l.word(wordAdd), 1)
	get := l.p.Get(l.src.Slice(off+most, n), l.at(l.area(0)))
	old, err := add.Wait(l.ctx)
	if errors.Is(err, rma.ErrLostResult) && os.Getenv("RMA_FABRIC") == "verbs" && os.Getenv("RMA_IBV_ATOMICS") != "host" { // the next one finds that it was executed
		l.say(event{Ev: "count", Op: "results of fetch-adds lost", N: 1})
		old, err = i, nil
	}
	if err := errors.Join(err, put.Wait(l.ctx), get.Wait(l.ctx)); err != nil {
		return err
	}
	took := now() - start
	l.held(intact)
	if err := testutil.Verify(dst, pattern(l.eng.Rank(), i), 0); err != nil {
		l.bad(intact, "put %d of %d bytes to rank %d, read back: %v", i, n, l.p.Rank(), err)
	}
	if old != i {
		l.bad(intact, "fetch-add %d at rank %d found %d", i, l.p.Rank(), old)
	}
	downs = w.downs.Load() - downs
	if w.lost.Load() != lost || downs > 0 || cut && !w.isDown() {
		l.say(event{Ev: "across", At: took})
	}
	if downs > 1 || downs == 1 && cut {
		l.say(event{Ev: "count", Op: "operations across several flaps", N: 1})
	}
	l.lookAtRails()
	return nil
}

// lookAtRails reports the rails that have been lost and carry parts again.
func (l *line) lookAtRails() {
	w := &l.railWatch
	if os.Getenv("RMA_FABRIC") == "auto" && w.tcp != (l.p.Link() == "tcp") {
		w.tcp = !w.tcp
		l.say(event{Ev: map[bool]string{true: railCarried, false: railReturned}[w.tcp]})
	}
	rails, all := l.p.Stats().Rails, true
	for i := range rails {
		s := &rails[i]
		same := len(w.before) > i && s.Up && s.Lost == w.before[i].Lost
		if same && (i == 0 || s.Parts > w.before[i].Parts) { // rail 0 has carried the fetch-add
			if at := w.since[i].Swap(0); at != 0 {
				l.say(event{Ev: "back", N: i, At: now() - time.Duration(at)})
			}
		}
		all = all && s.Up && (i == 0 || s.Parts > 0) && w.since[i].Load() == 0
	}
	w.before = rails
	switch asked := w.settle.Load(); {
	case w.told == asked:
		w.late = now() + endLimit/2
	case all:
		w.told++
		l.say(event{Ev: "settled"})
	case now() > w.late:
		w.late = now() + endLimit
		l.say(event{Ev: "late", Text: fmt.Sprintf("%+v", rails)})
	}
}

// cut shuts down the sockets of rails; the words are numbers of rails, each with the direction.
func (k *rank) cut(words []string) {
	for ; len(words) > 1; words = words[2:] {
		rail, _ := strconv.Atoi(words[0])
		how, _ := strconv.Atoi(words[1])
		n := 0
		list, _ := os.ReadDir("/proc/self/fd")
		for _, f := range list {
			fd, _ := strconv.Atoi(f.Name())
			mine, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0) // fd may be another file's soon
			if err != nil {
				continue
			}
			here, _ := unix.Getsockname(mine)
			there, _ := unix.Getpeername(mine)
			if there != nil && (ofRail(here, rail) || ofRail(there, rail)) && unix.Shutdown(mine, how) == nil {
				n++ // a listener has no other end
			}
			_ = unix.Close(mine)
		}
		k.say(event{Ev: "count", Op: "sockets shut down", N: n})
	}
}

// ofRail reports whether an address is of that rail.
func ofRail(a unix.Sockaddr, rail int) bool {
	in, is := a.(*unix.SockaddrInet4)
	return is && in.Addr[0] == 127 && in.Addr[1] == railNet && int(in.Addr[3]) == rail+1
}
