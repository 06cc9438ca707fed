package bench

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/tempdir"
)

// RailsRequest asks for the bandwidth of puts, gets and messages that are divided over several links,
// beside that of each link alone.
type RailsRequest struct {
	Fabric string        `json:"fabric"` // tcp or ibv
	Links  [2][]string   `json:"links"`  // of both ranks, in the order in which they are connected: addresses or devices
	Ops    []string      `json:"ops"`    // put, get, recv
	Sizes  []int         `json:"sizes"`
	Window int           `json:"window"` // operations in flight
	Rounds int           `json:"rounds"`
	Time   time.Duration `json:"time"`            // of one series
	Rates  string        `json:"rates,omitempty"` // what the links were shaped to; it is copied to the results
}

// RailsOps are the operations that RailsRequest.Ops may contain.
var RailsOps = []string{"put", "get", "recv"}

// maxRailsSize bounds RailsRequest.Sizes, and maxRailsWindow the operations in flight.
const (
	maxRailsSize   = 256 << 20
	maxRailsWindow = 64
)

// Check reports why the request cannot be carried out. Both sides call it.
func (r *RailsRequest) Check() error {
	switch {
	case r.Fabric != "tcp" && r.Fabric != "ibv":
		return fmt.Errorf("%w: fabric %q, want tcp or verbs", ErrPlan, r.Fabric)
	case len(r.Links[0]) < 2 || len(r.Links[0]) != len(r.Links[1]) || len(r.Links[0]) > 4:
		return fmt.Errorf("%w: %d and %d links, want the same number for both ranks, 2 to 4", ErrPlan, len(r.Links[0]), len(r.Links[1]))
	case len(r.Ops) == 0 || len(r.Sizes) == 0:
		return fmt.Errorf("%w: no operation, or no size", ErrPlan)
	case r.Window < 1 || r.Window > maxRailsWindow:
		return fmt.Errorf("%w: window %d, want 1 to %d", ErrPlan, r.Window, maxRailsWindow)
	case r.Rounds < 1 || r.Rounds > maxCount:
		return fmt.Errorf("%w: %d rounds, want 1 to %d", ErrPlan, r.Rounds, maxCount)
	case r.Time <= 0 || r.Time > maxTime:
		return fmt.Errorf("%w: time %v", ErrPlan, r.Time)
	}
	for _, op := range r.Ops {
		if !slices.Contains(RailsOps, op) {
			return fmt.Errorf("%w: operation %q, want some of %v", ErrPlan, op, RailsOps)
		}
	}
	for _, n := range r.Sizes {
		if n < 1 || n > maxRailsSize {
			return fmt.Errorf("%w: size %d, want 1 to %d", ErrPlan, n, maxRailsSize)
		}
	}
	if r.Fabric != "tcp" {
		return nil
	}
	for _, where := range slices.Concat(r.Links[0], r.Links[1]) {
		if _, err := netip.ParseAddr(where); err != nil {
			return fmt.Errorf("%w: link %q, want an address: %w", ErrPlan, where, err)
		}
	}
	return nil
}

// RailsResult is the bandwidth of one operation and size, the median over the rounds. Its
// JSON form is one line; fields are only ever added.
type RailsResult struct {
	What    string    `json:"what"` // RailsWhat
	Fabric  string    `json:"fabric"`
	Op      string    `json:"op"`
	Size    int       `json:"size"`
	Window  int       `json:"window"`
	Rates   string    `json:"rates"`
	Rounds  int       `json:"rounds"`
	MBs     float64   `json:"mb_s"`       // over all links, 1 MB = 1e6 bytes
	Alone   []float64 `json:"alone_mb_s"` // over each link alone
	OfSum   float64   `json:"of_sum"`     // MBs by the sum of Alone
	OfBest  float64   `json:"of_best"`    // MBs by the best of Alone
	Divided float64   `json:"divided"`    // share of the bytes that other links than the first carried
	First   float64   `json:"first_us"`   // the first operation of this size over all links, in µs
}

// RailsWhat is RailsResult.What.
const RailsWhat = "rails"

// railsPair is an engine of this rank, with the peer's memory.
type railsPair struct {
	eng  *rma.Engine
	mem  *rma.Region
	key  rma.Key
	reqs []rma.Request
}

// MeasureRails measures between two ranks. Both call it, rank 1 with a zero request. Rank 0
// passes the results to emit. Each side has one engine that uses all links, and one for each
// link alone; the series of these follow one another in turn.
func MeasureRails(ctx context.Context, ctl Control, req RailsRequest, emit func(RailsResult) error) (err error) {
	if err := Share(ctx, ctl, &req, req.Check); err != nil {
		return err
	}
	dir, err := tempdir.New("", "rmabench-")
	if err = agree(ctx, ctl, err); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	mine := req.Links[ctl.Rank()]
	sets := [][]string{mine}
	for _, where := range mine {
		sets = append(sets, []string{where})
	}
	pairs := make([]*railsPair, 0, len(sets))
	var servers []io.Closer
	defer func() { // all engines of both sides live until both have ended
		err = agree(ctx, ctl, err)
		for _, p := range pairs {
			err = errors.Join(err, p.eng.Close())
		}
		for _, s := range servers {
			err = errors.Join(err, s.Close())
		}
	}()
	for i, set := range sets {
		cfg := &rma.Config{Fabric: rma.Fabric(req.Fabric), Profiles: filepath.Join(dir.Path, fmt.Sprintf("profiles%d", i)), Rails: strings.Join(set[1:], ",")}
		if req.Fabric == "tcp" {
			cfg.Bind, _ = netip.ParseAddr(set[0])
		} else {
			cfg.Device = set[0]
		}
		p := &railsPair{}
		var srv io.Closer
		if cfg.Job, srv, err = jobBeside(ctx, ctl, "unix:"+filepath.Join(dir.Path, fmt.Sprint(i))); srv != nil {
			servers = append(servers, srv)
		}
		if err != nil {
			return err
		}
		if p.eng, err = rma.Open(ctx, cfg); err != nil {
			return fmt.Errorf("links %v: %w", set, err)
		}
		pairs = append(pairs, p)
		if err = p.share(ctx, ctl, 2*slices.Max(req.Sizes)); err == nil && ctl.Rank() != 0 {
			err = p.serve()
		}
		if err != nil {
			return err
		}
	}
	if ctl.Rank() != 0 {
		return nil // the engines serve rank 0 until it has ended
	}
	if err := pairs[0].connected(ctx, len(mine)); err != nil {
		return err
	}
	for _, op := range req.Ops {
		for _, n := range req.Sizes {
			err := pairs[0].check(ctx, n, uint64(n))
			var r RailsResult
			if err == nil {
				r, err = req.point(ctx, pairs, op, n)
			}
			if err == nil {
				err = emit(r)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// share allocates memory and exchanges its key with the other rank.
func (p *railsPair) share(ctx context.Context, ctl Control, n int) error {
	var mine []byte
	var err error
	if p.mem, err = p.eng.Alloc(n); err == nil {
		mine = p.mem.Key().Append(nil)
	}
	if err := agree(ctx, ctl, err); err != nil {
		return err
	}
	theirs, err := ctl.Exchange(ctx, mine)
	if err == nil {
		p.key, err = rma.ParseKey(theirs)
	}
	return err
}

// Tags of the messages of recv: rank 0 asks for one of so many bytes, and gets it.
const railsAsk, railsData = 1, 2

// serve answers the messages of recv. The engine's end ends it.
func (p *railsPair) serve() error {
	_, err := p.eng.Handle(railsAsk, func(_ rma.Envelope, parts [][]byte) {
		var b [8]byte
		copy(b[:], slices.Concat(parts...))
		if n := binary.LittleEndian.Uint64(b[:]); n <= uint64(len(p.mem.Bytes())) {
			p.eng.Peer(0).SendBuffer(railsData, p.mem.Slice(0, int(n))).Forget()
		}
	})
	return err
}

// connected connects the links, and waits until all of them are up.
func (p *railsPair) connected(ctx context.Context, links int) error {
	peer := p.eng.Peer(1)
	if err := peer.Put(p.key.At(0), p.mem.Slice(0, 1)).Wait(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		up := 0
		rails := peer.Stats().Rails
		for _, r := range rails {
			if r.Up {
				up++
			}
		}
		if up == links {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%d of %d links are connected: %+v: %w", up, links, rails, ctx.Err())
		}
	}
}

// others returns the bytes that other links than the first have carried.
func others(p *railsPair) (n float64) {
	for _, s := range p.eng.Peer(1).Stats().Rails[1:] {
		n += float64(s.Bytes)
	}
	return n
}

// point measures one operation and size.
func (r *RailsRequest) point(ctx context.Context, pairs []*railsPair, op string, n int) (RailsResult, error) {
	res := RailsResult{What: RailsWhat, Fabric: r.Fabric, Op: op, Size: n, Window: r.Window, Rates: r.Rates, Rounds: r.Rounds}
	took := make([][]float64, len(pairs))
	mbs, err := pairs[0].stream(ctx, op, n, 1, 1, 0)
	if err != nil {
		return res, err
	}
	res.First = float64(n) / mbs
	for i, p := range pairs { // memory is touched, and the engine that divides learns
		d := r.Time
		if i > 0 {
			d = 0
		}
		if _, err = p.stream(ctx, op, n, r.Window, 1, d); err != nil {
			return res, err
		}
	}
	s := pairs[0].eng.Peer(1).Stats()
	moved := s.PutBytes + s.GetBytes + s.RecvBytes
	was := others(pairs[0])
	for round := range r.Rounds {
		for i := range pairs {
			i = (i + round) % len(pairs)
			mbs, err := pairs[i].stream(ctx, op, n, r.Window, r.Window, r.Time)
			if err != nil {
				return res, err
			}
			took[i] = append(took[i], mbs)
		}
	}
	s = pairs[0].eng.Peer(1).Stats()
	is := others(pairs[0])
	res.Divided = (is - was) / float64(max(s.PutBytes+s.GetBytes+s.RecvBytes-moved, 1))
	res.MBs = Median(took[0])
	sum := 0.0
	for _, v := range took[1:] {
		res.Alone = append(res.Alone, Median(v))
		sum += Median(v)
	}
	res.OfSum, res.OfBest = res.MBs/sum, res.MBs/slices.Max(res.Alone)
	return res, nil
}

// stream moves n bytes again and again, with window operations in flight, at least count
// times and for the time d. It returns the bandwidth in MB/s. Operations alternate between
// two places of the memory.
func (p *railsPair) stream(ctx context.Context, op string, n, window, count int, d time.Duration) (mbs float64, err error) {
	peer := p.eng.Peer(1)
	p.reqs = p.reqs[:0]
	since, done := cpu.Ticks(), 0
	ns := func() float64 { return float64(cpu.Ticks()-since) * cpu.NsPerTick() }
	for done < count || ns() < float64(d) {
		if len(p.reqs) == window {
			if err := p.reqs[0].Wait(ctx); err != nil {
				return 0, err
			}
			p.reqs = append(p.reqs[:0], p.reqs[1:]...)
		}
		at := done % 2 * n
		switch op {
		case "get":
			p.reqs = append(p.reqs, peer.Get(p.mem.Slice(at, n), p.key.At(at)))
		case "recv":
			p.reqs = append(p.reqs, peer.RecvBuffer(railsData, p.mem.Slice(at, n)).Request)
			peer.SendTag(railsAsk, binary.LittleEndian.AppendUint64(nil, uint64(n))).Forget()
		default:
			p.reqs = append(p.reqs, peer.Put(p.key.At(at), p.mem.Slice(at, n)))
		}
		done++
	}
	err = rma.WaitAll(ctx, p.reqs...)
	return float64(done) * float64(n) / ns() * 1e3, err
}

// check puts data, gets it back elsewhere, and compares.
func (p *railsPair) check(ctx context.Context, n int, seed uint64) error {
	mem, peer := p.mem.Bytes(), p.eng.Peer(1)
	fill(mem[:n], seed)
	if err := peer.Put(p.key.At(0), p.mem.Slice(0, n)).Wait(ctx); err != nil {
		return err
	}
	clear(mem[n : 2*n])
	if err := peer.Get(p.mem.Slice(n, n), p.key.At(0)).Wait(ctx); err != nil {
		return err
	}
	if !bytes.Equal(mem[:n], mem[n:2*n]) {
		return fmt.Errorf("%w: %d bytes that were put and got again", ErrValidate, n)
	}
	return nil
}

// WriteRails writes the results for people.
func WriteRails(w io.Writer, rs []RailsResult) error {
	if len(rs) == 0 {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "op\tsize\tMB/s over %d links\t", len(rs[0].Alone))
	for i := range rs[0].Alone {
		fmt.Fprintf(t, "link %d alone\t", i)
	}
	fmt.Fprintln(t, "of the sum\tof the best\tby others\tfirst, µs\t")
	for i := range rs {
		r := &rs[i]
		fmt.Fprintf(t, "%s\t%s\t%.2f\t", r.Op, FormatSize(r.Size), r.MBs)
		for _, v := range r.Alone {
			fmt.Fprintf(t, "%.2f\t", v)
		}
		fmt.Fprintf(t, "%.3f\t%.3f\t%.0f %%\t%.0f\t\n", r.OfSum, r.OfBest, 100*r.Divided, r.First)
	}
	return t.Flush()
}
