package fabrictest

import (
	"context"
	"errors"
	"os"
	"strings"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/sim"
)

// devZero is a descriptor that is always readable.
var devZero, _ = os.Open("/dev/zero")

// counted returns a poll hook whose f is given the running number of each completion of a
// request.
func counted(f func(l *mutLink, n int, c *fabric.Completion) bool) hooks {
	return reported(func(l *mutLink, c *fabric.Completion) bool {
		if c.Op == fabric.OpNotify || c.Op == fabric.OpDown {
			return true
		}
		l.n++
		return f(l, l.n, c)
	})
}

var queueMutants = []mutant{
	{name: "a completion comes twice", by: []string{"QueueFull", "ExactlyOnce"},
		hooks: counted(func(l *mutLink, n int, c *fabric.Completion) bool {
			if n == 40 {
				l.extra = append(l.extra, *c)
			}
			return true
		})},
	{name: "a completion is lost", by: []string{"QueueFull", "ExactlyOnce", "BothBusy", "WakeOnCompletion"},
		hooks: counted(func(_ *mutLink, n int, _ *fabric.Completion) bool { return n != 40 })},
	{name: "completions get another's ID", by: []string{"QueueFull", "ExactlyOnce"},
		hooks: counted(func(l *mutLink, n int, c *fabric.Completion) bool {
			if n == 40 {
				c.ID = l.last.ID
			}
			l.last = *c
			return true
		})},
	{name: "unsignalled requests complete", by: []string{"UnsignaledOnly", "ExactlyOnce", "ReadAfterWrite", "UnsignaledAreDone"},
		hooks: each(func(_ *mutEP, w *fabric.WR) { w.Flags |= fabric.FlagSignaled })},
	{name: "completions name another endpoint", by: []string{"ManyEndpoints", "ExactlyOnce"},
		hooks: counted(func(l *mutLink, n int, c *fabric.Completion) bool {
			if n%7 == 0 {
				c.EP = l.eps[0].id
			}
			return true
		})},
	{name: "notifications name another endpoint", by: []string{"ManyEndpoints"},
		hooks: reported(func(l *mutLink, c *fabric.Completion) bool {
			if c.Op == fabric.OpNotify {
				c.EP = l.eps[0].id
			}
			return true
		})},
	{name: "endpoints share a fate when closed", by: []string{"ManyEndpoints"}, hooks: hooks{
		epClose: func(e *mutEP) error {
			for _, x := range e.l.eps {
				_ = x.Endpoint.Close()
			}
			return nil
		}}},
	{name: "a full queue swallows the rest", by: []string{"QueueFull"}, hooks: hooks{
		post: func(e *mutEP, ws []fabric.WR) (int, error) {
			n, err := e.Endpoint.Post(ws)
			if err == nil && n > 0 {
				n = len(ws)
			}
			return n, err
		}}},
	{name: "the queue has no end", by: []string{"QueueFull"}, hooks: hooks{
		post: func(e *mutEP, ws []fabric.WR) (int, error) {
			n, err := e.Endpoint.Post(ws)
			if err == nil {
				e.held = append(e.held, clone(ws[n:])...)
				n = len(ws)
			}
			return n, err
		},
		poll: func(l *mutLink, cs []fabric.Completion) int {
			for _, e := range l.eps {
				n, _ := e.Endpoint.Post(e.held)
				e.held = e.held[n:]
			}
			return l.Link.Poll(cs)
		}}},
	{name: "a short Post reports one too few", by: []string{"QueueFull"}, hooks: hooks{
		post: func(e *mutEP, ws []fabric.WR) (int, error) {
			n, err := e.Endpoint.Post(ws)
			if n > 1 && n < len(ws) {
				n--
			}
			return n, err
		}}},
	{name: "the queue is smaller than asked for", by: []string{"QueueFull"}, hooks: hooks{
		post: func(e *mutEP, ws []fabric.WR) (int, error) { return e.Endpoint.Post(ws[:min(len(ws), 3)]) }}},
	{name: "unsignalled requests keep their places", by: []string{"UnsignaledOnly"}, hooks: hooks{
		post: func(e *mutEP, ws []fabric.WR) (int, error) {
			for i, w := range ws {
				if w.Flags&fabric.FlagSignaled == 0 {
					if e.n++; e.n > 64 {
						return i, nil
					}
				}
				if n, err := e.Endpoint.Post(ws[i : i+1]); n == 0 || err != nil {
					return i, err
				}
			}
			return len(ws), nil
		}}},
	{name: "a malformed request is named wrongly", by: []string{"InvalidRequest"}, hooks: hooks{
		post: func(e *mutEP, ws []fabric.WR) (int, error) {
			n, err := e.Endpoint.Post(ws)
			var we *fabric.WRError
			if errors.As(err, &we) {
				we.Index++
			}
			return n, err
		}}},
	{name: "a malformed request voids those before it", by: []string{"InvalidRequest"}, hooks: hooks{
		post: func(e *mutEP, ws []fabric.WR) (int, error) {
			for i := range ws {
				if ws[i].Op == fabric.OpInvalid || ws[i].Op > fabric.OpCompareSwap {
					return 0, &fabric.WRError{Index: i, Op: ws[i].Op}
				}
			}
			return e.Endpoint.Post(ws)
		}}},
	{name: "malformed requests are skipped", by: []string{"InvalidRequest"}, hooks: hooks{
		post: func(e *mutEP, ws []fabric.WR) (int, error) {
			n, err := e.Endpoint.Post(ws)
			if errors.Is(err, fabric.ErrInvalidWR) {
				m, err2 := e.Endpoint.Post(ws[n+1:])
				return n + 1 + m, err2
			}
			return n, err
		}}},
	{name: "a read now and then brings nothing", by: []string{"BothBusy"},
		hooks: execute(func(w *fabric.WR) bool { return isRead(w) && w.ID%97 == 96 }, func(*mutEP, *fabric.WR) {})},
	{name: "a write now and then goes elsewhere", by: []string{"BothBusy", "Model"},
		hooks: each(func(e *mutEP, w *fabric.WR) {
			if isWrite(w) && w.Len() >= 16 {
				if e.n++; e.n%50 == 49 {
					lastPiece(w).Len -= 8
				}
			}
		})},
}

var wakeMutants = []mutant{
	{name: "Arm never refuses and never arms", opt: sim.Options{Caps: sim.CapsLike("tcp")}, by: []string{"WakeOnNotify", "WakeOnWrite", "WakeOnCompletion", "WakeOnDown"},
		hooks: hooks{arm: func(*mutLink) (bool, error) { return true, nil }}},
	{name: "Arm overlooks what is pending", by: []string{"WakeOnNotify"}, hooks: hooks{
		arm: func(l *mutLink) (bool, error) { _, err := l.Link.Arm(); return true, err }}},
	{name: "Arm always refuses", by: []string{"SleepIsQuiet"},
		hooks: hooks{arm: func(*mutLink) (bool, error) { return false, nil }}},
	{name: "FD is always readable", by: []string{"SleepIsQuiet"}, hooks: hooks{fd: func(*mutLink) int { return int(devZero.Fd()) }}},
	{name: "FD changes", by: []string{"SleepIsQuiet"}, hooks: hooks{fd: func(l *mutLink) int { l.n++; return l.Link.FD() + l.n%2 }}},
	{name: "plain writes do not wake, though promised", by: []string{"WakeOnWrite", "WakeOnQuietWrite"}, opt: sim.Options{Caps: sim.CapsLike("ibv")},
		hooks: hooks{caps: func(c *fabric.Caps) { c.WakesOnWrite = true }}},
	{name: "requests of peers are not counted", opt: sim.Options{Caps: sim.CapsLike("tcp")}, by: []string{"ServedIsCounted"},
		hooks: hooks{served: func(*mutLink) uint32 { return 0 }}},
	{name: "Served counts whenever it is asked", opt: sim.Options{Caps: sim.CapsLike("tcp")}, by: []string{"ServedIsCounted"},
		hooks: hooks{served: func(l *mutLink) uint32 { l.n++; return uint32(l.n) }}},
	{name: "FD is another's", opt: sim.Options{MaxDelay: 50, MaxCompletionDelay: 50}, by: []string{"WakeOnNotify", "WakeOnCompletion", "WakeOnDown"},
		hooks: hooks{fd: func(*mutLink) int { return 0x7fff }}},
}

var goneMutants = []mutant{
	{name: "peers are not told of a close", by: []string{"PeerCloses", "IdlePeerGone", "WakeOnDown"},
		hooks: hooks{epClose: func(*mutEP) error { return nil }}},
	{name: "requests to a peer that is gone never end", by: []string{"PeerDies", "PeerLinkCloses", "PeerCloses"},
		opt: sim.Options{Caps: sim.CapsLike("tcp")},
		hooks: reported(func(_ *mutLink, c *fabric.Completion) bool {
			return c.Op == fabric.OpDown || c.Status != fabric.StatusPeerGone
		})},
	{name: "a dead peer is taken for a success", by: []string{"PeerDies"}, opt: sim.Options{Caps: sim.CapsLike("tcp")},
		hooks: reported(func(_ *mutLink, c *fabric.Completion) bool {
			if c.Status == fabric.StatusPeerGone {
				c.Status = fabric.StatusRemoteOp
			}
			return true
		})},
	{name: "Close forgets what is outstanding", by: []string{"CloseFlushes"}, opt: sim.Options{Caps: sim.CapsLike("tcp")},
		hooks: reported(func(_ *mutLink, c *fabric.Completion) bool { return c.Status != fabric.StatusFlushed })},
	{name: "OpDown for one's own close", by: []string{"CloseFlushes"}, hooks: hooks{
		epClose: func(e *mutEP) error {
			if e.n++; e.n == 1 {
				e.l.extra = append(e.l.extra, fabric.Completion{EP: e.id, Op: fabric.OpDown, Status: fabric.StatusFlushed})
			}
			return e.Endpoint.Close()
		}}},
	{name: "Close twice is an error", by: []string{"CloseFlushes"}, hooks: hooks{
		epClose: func(e *mutEP) error {
			if e.n++; e.n > 1 {
				return fabric.ErrClosed
			}
			return e.Endpoint.Close()
		}}},
	{name: "the link keeps silent about open regions", by: []string{"LinkClose", "PeerLinkCloses"}, hooks: hooks{close: forgiving}},
	{name: "a closed link registers memory", by: []string{"LinkClose"}, hooks: hooks{
		register: func(l *mutLink, mem []byte, acc fabric.Access) (fabric.Region, error) {
			r, err := l.Link.Register(mem, acc)
			if err != nil {
				return immortal{}, nil
			}
			return r, nil
		}}},
}

var connectMutants = []mutant{
	{name: "posting before Connect", by: []string{"NotConnected"}, hooks: hooks{
		post: func(e *mutEP, ws []fabric.WR) (int, error) {
			n, err := e.Endpoint.Post(ws)
			if errors.Is(err, fabric.ErrNotConnected) {
				return len(ws), nil
			}
			return n, err
		}}},
	{name: "a closed endpoint connects", by: []string{"NotConnected"}, hooks: hooks{
		connect: func(e *mutEP, ctx context.Context, addr []byte) error {
			err := e.Endpoint.Connect(ctx, addr)
			if errors.Is(err, fabric.ErrClosed) {
				return nil
			}
			return err
		}}},
	{name: "bad addresses are accepted", by: []string{"BadAddress"}, hooks: hooks{
		connect: func(e *mutEP, ctx context.Context, addr []byte) error {
			err := e.Endpoint.Connect(ctx, addr)
			if errors.Is(err, fabric.ErrBadAddress) {
				return nil
			}
			return err
		}}},
	{name: "bad addresses give an untyped error", by: []string{"BadAddress"}, hooks: hooks{
		connect: func(e *mutEP, ctx context.Context, addr []byte) error {
			if err := e.Endpoint.Connect(ctx, addr); err != nil {
				return errors.New(err.Error())
			}
			return nil
		}}},
	{name: "its own address is accepted", by: []string{"BadAddress"}, hooks: hooks{
		connect: func(e *mutEP, ctx context.Context, addr []byte) error {
			err := e.Endpoint.Connect(ctx, addr)
			if err != nil && strings.Contains(err.Error(), "own") {
				return nil
			}
			return err
		}}},
	{name: "a bad address uses the good one up", by: []string{"DamagedAddress", "BadAddress"}, hooks: hooks{
		connect: func(e *mutEP, ctx context.Context, addr []byte) error {
			err := e.Endpoint.Connect(ctx, addr)
			if errors.Is(err, fabric.ErrBadAddress) {
				e.l.mu.Lock()
				defer e.l.mu.Unlock()
				e.l.n++
			} else if e.l.n > 0 && err == nil {
				return fabric.ErrBadAddress
			}
			return err
		}}},
	{name: "the late comer takes the connection over", by: []string{"UsedAddress"}, hooks: hooks{
		connect: func(e *mutEP, ctx context.Context, addr []byte) error {
			err := e.Endpoint.Connect(ctx, addr)
			if errors.Is(err, fabric.ErrBadAddress) {
				e.l.mu.Lock()
				defer e.l.mu.Unlock()
				for _, x := range e.l.eps {
					_ = x.Endpoint.Close()
				}
				return nil
			}
			return err
		}}},
	{name: "Connect ignores its context", by: []string{"ConnectDeadline"}, opt: sim.Options{ConnectWaits: true}, hooks: hooks{
		connect: func(e *mutEP, _ context.Context, addr []byte) error {
			return e.Endpoint.Connect(context.Background(), addr)
		}}},
}

var allocMutants = []mutant{
	{name: "Post allocates", by: []string{"NoAllocation"}, hooks: each(func(*mutEP, *fabric.WR) {})},
	{name: "Poll allocates", by: []string{"NoAllocation"}, hooks: hooks{
		poll: func(l *mutLink, cs []fabric.Completion) int {
			n := l.Link.Poll(cs)
			if n > 0 {
				l.eps = append([]*mutEP(nil), l.eps...)
			}
			return n
		}}},
	{name: "notifications allocate", by: []string{"NoAllocation"},
		hooks: reported(func(_ *mutLink, c *fabric.Completion) bool {
			if c.Op == fabric.OpNotify {
				sink = new(fabric.Completion)
			}
			return true
		})},
}

var sink *fabric.Completion
