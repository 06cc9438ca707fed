package ibv

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/verbs"
)

// Options configures a link. The zero value takes the first device with an
// active port and chooses everything else.
type Options struct {
	// Device is the name of the RDMA device, or of the network interface that it belongs to.
	// Empty: the first that has a usable port.
	Device string

	// Port counts from 1. 0: the first that is active.
	Port int

	// GIDIndex is the entry of the port's GID table to send from. nil: chosen,
	// see verbs.ChooseGID; Link.Choice says which and why.
	GIDIndex *int

	// MTU in bytes (256, 512, 1024, 2048, 4096) bounds the path MTU. 0: the port's.
	MTU int

	// MaxReads bounds reads and atomics in flight on one endpoint, in each direction,
	// together with the limits of device and peer. 0: DefaultMaxReads.
	MaxReads int

	// LastByteLast overrides Caps.LastByteLast, see the package comment. nil: true,
	// except on devices known to break it.
	LastByteLast *bool

	// Guard says whether connections are guarded against the defects of rdma_rxe on a network
	// that loses, repeats or reorders packets, see the package comment. nil: only on
	// rdma_rxe, to peers behind a network.
	Guard *bool

	// HostAtomics has the target's processor execute atomics, while it polls, also where the device has them,
	// so that the result of none is lost with a queue pair (fabric.StatusLostResult), and they exclude those
	// of the processor. Both sides must say the same.
	HostAtomics bool

	// Resume lets endpoints continue on another queue pair when theirs fails (fabric.Rejoiner), if the
	// peer's do as well, and both devices tell what a queue pair has executed.
	Resume bool

	// Spares are further ports, in the order in which the peers list theirs, over which endpoints continue,
	// with Resume, if their own does not work. At most MaxSpares; each is opened when it is needed.
	Spares []Spare
}

// Spare names a port as Options.Device and Options.Port do.
type Spare struct {
	Device string
	Port   int
}

// DefaultMaxReads covers the latency of a switched network with 4 KiB reads; adapters keep
// state for each, and all of them support 16.
const DefaultMaxReads = 16

// ErrNoPort says that no port of the devices present can be used.
var ErrNoPort = errors.New("no usable port")

// place is the port that a link works on.
type place struct {
	ctx    *verbs.Context
	dev    verbs.DeviceAttr
	port   int
	attr   verbs.PortAttr
	gid    verbs.GIDEntry
	choice string

	candidates []verbs.GIDEntry // for gid, the best first
}

// Port is the port that a link uses, for programs that open queue pairs of their own beside it.
type Port struct {
	Device string
	Number int // from 1
	Attr   verbs.PortAttr
	GID    verbs.GIDEntry
	MTU    verbs.MTU // bound of the path MTU
	Inline int       // bytes that the device takes inline
}

// amazon is the vendor of EFA, whose packets take several paths at once.
const amazon = 0x1d0f

func (o *Options) lastByteLast(vendor uint32) bool {
	if o.LastByteLast != nil {
		return *o.LastByteLast
	}
	return vendor != amazon
}

// open finds a suitable device and port.
func (o *Options) open() (*place, error) {
	if o.MTU != 0 && verbs.MTUOf(o.MTU) == 0 {
		return nil, fmt.Errorf("open ibv link: MTU %d: want 256, 512, 1024, 2048 or 4096", o.MTU)
	}
	if len(o.Spares) > MaxSpares {
		return nil, fmt.Errorf("open ibv link: %d spare ports: at most %d", len(o.Spares), MaxSpares)
	}
	if o.MaxReads < 0 || o.MaxReads > 255 {
		return nil, fmt.Errorf("open ibv link: MaxReads %d: want 0 to 255", o.MaxReads)
	}
	ds, err := verbs.Devices()
	if errors.Is(err, verbs.ErrNotSupported) {
		return nil, fmt.Errorf("open ibv link: %w: %w", fabric.ErrNotSupported, err)
	}
	if err != nil {
		return nil, fmt.Errorf("open ibv link: %w", err)
	}
	want := o.Device
	if want != "" {
		if dev, err := verbs.DeviceForNetDev(want); err == nil {
			want = dev
		}
	}
	var why []string
	for _, d := range ds {
		if want != "" && d.Name != want {
			continue
		}
		p, err := o.try(d)
		if err == nil {
			return p, nil
		}
		why = append(why, err.Error())
	}
	switch {
	case len(ds) == 0:
		return nil, fmt.Errorf("open ibv link: %w: %w: this host has none", fabric.ErrNotSupported, verbs.ErrNoDevice)
	case len(why) == 0:
		return nil, fmt.Errorf("open ibv link: %w: %s", verbs.ErrNoDevice, o.Device)
	}
	return nil, fmt.Errorf("open ibv link: %w: %w: %s", fabric.ErrNotSupported, ErrNoPort, strings.Join(why, "; "))
}

// try looks for a usable port of d.
func (o *Options) try(d verbs.Device) (*place, error) {
	if d.Transport != verbs.TransportIB {
		return nil, fmt.Errorf("%s: transport %v: only InfiniBand and RoCE", d.Name, d.Transport)
	}
	ctx, err := verbs.Open(d.Name)
	if err != nil {
		return nil, err
	}
	p := &place{ctx: ctx}
	fail := func(err error) (*place, error) {
		return nil, errors.Join(err, ctx.Close())
	}
	if p.dev, err = ctx.QueryDevice(); err != nil {
		return fail(err)
	}
	var why []string
	for p.port = 1; p.port <= p.dev.Ports; p.port++ {
		if o.Port != 0 && p.port != o.Port {
			continue
		}
		if p.attr, err = ctx.QueryPort(p.port); err != nil {
			return fail(err)
		}
		if p.attr.State != verbs.PortActive {
			why = append(why, fmt.Sprintf("%s port %d is %v", d.Name, p.port, p.attr.State))
			continue
		}
		table, err := ctx.GIDs(p.port)
		if err != nil {
			return fail(err)
		}
		index := -1
		if o.GIDIndex != nil {
			index = *o.GIDIndex
			if index < 0 || index > 255 {
				return fail(fmt.Errorf("%s port %d: GID index %d: want 0 to 255", d.Name, p.port, index))
			}
		}
		c, err := verbs.ChooseGID(table, index)
		if err != nil {
			why = append(why, fmt.Sprintf("%s port %d: %v", d.Name, p.port, err))
			continue
		}
		if c.Chosen.Index > 255 {
			why = append(why, fmt.Sprintf("%s port %d: GID index %d cannot be expressed", d.Name, p.port, c.Chosen.Index))
			continue
		}
		p.gid, p.candidates = c.Chosen, []verbs.GIDEntry{c.Chosen}
		if index < 0 {
			p.candidates = c.Candidates()
		}
		p.choice = fmt.Sprintf("device %s port %d, %s", d.Name, p.port, c.Reason)
		return p, nil
	}
	if len(why) == 0 {
		why = append(why, fmt.Sprintf("%s has no port %d", d.Name, o.Port))
	}
	return fail(errors.New(strings.Join(why, "; ")))
}

// maxRetries is the highest finite retry count: 7 means infinite retries on rdma_rxe.
const maxRetries = 6

// retries encodes a peer time-out. A device sends a request 1 + maxRetries times and waits
// 4.096 µs · 2^code after each (adapters may take up to four times as long; rdma_rxe needs
// 4 to 18 % more). The result is therefore the largest code whose seven waits do not exceed
// d, and at least 8 (1 ms): a loaded peer does not answer within shorter waits.
func retries(d time.Duration) (code uint8) {
	for code = 8; code < 31 && (maxRetries+1)*(4096<<(code+1))*time.Nanosecond <= d; code++ {
	}
	return code
}

// rnrTicks are the waits encoded by a receiver-not-ready timer, in units of 10 µs
// (InfiniBand Architecture, table of the AETH syndrome).
var rnrTicks = [32]int{65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768,
	1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152}

// rnrTimer returns the code of the time that peers wait when this side has no receive for
// their notification. They try seven times, so a side that does not poll for half of d is
// given up. Longer waits would also delay the notifications behind; shorter ones would
// break the connection to a poller that was descheduled. The minimum is 10 ms, 70 ms in
// all.
func rnrTimer(d time.Duration) (code uint8) {
	for code = 20; code < 31 && 7*time.Duration(rnrTicks[code])*10*time.Microsecond < d/2; code++ {
	}
	return code
}
