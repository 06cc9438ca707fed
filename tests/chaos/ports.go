//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// acrossFlap includes the time of the flap, and of others in the same operation.
var acrossFlap = figure{"put, fetch-add and get across a flap", 0, endLimit}

// killedToError is the time from the death of a rank that replaces its queue pair to the error.
var killedToError = figure{"death while a queue pair is replaced to error", 0, tellLimit}

// ports disturbs the ports of RDMA devices with rails between them, rail 0 included, again and again: an
// interface goes down, packets vanish without a word, or an address is removed, for 50 ms to 3 s each, and
// all of that also within one operation, and in the end each wire is taken away for longer than a connection
// waits for it. Atomics are executed by the devices, so that results may be lost, or by the ranks, where none is; with
// those, in some rounds, all wires are taken away in the end until tcp carries rail 0, and given back.
// Some rounds end with the death of a rank whose queue pair is being replaced. Nothing else fails, is lost or doubled, and all rails come back into use.
func ports(ctx context.Context, r *round) {
	w, err := findWires()
	if err != nil {
		r.leaveOut(err)
		return
	}
	defer func() {
		r.failed(w.restore())
	}()
	timeout := pick(r, peerTimeout, peerTimeout, 2*peerTimeout)
	times := 40
	if r.quick {
		timeout, times = 2*peerTimeout, 10
	}
	atomics, fabric := pick(r, "device", "host"), "verbs"
	if atomics == "host" {
		fabric = pick(r, "verbs", "auto")
	}
	s := jobSpec{Ranks: 2, Fabric: fabric, Root: "unix", Wrap: w.wrap, Env: []string{"RMA_PEER_TIMEOUT=" + timeout.String(), "RMA_IBV_ATOMICS=" + atomics, "RMA_TCP_BIND=127.0.0.1"}}
	s.Work = work{Ops: append(some(r, r.IntN(3), []string{"acc", "signal", "recv", "any", "batch"}), "rails"), Seed: r.Uint64(), Max: 1 << (16 + r.IntN(4))}
	j := begin(r, s)
	if j == nil {
		return
	}
	defer j.kill()
	if !settled(r, j) {
		return
	}
	kinds := some(r, 4, []string{"down", "silent", "address", "moved"})
	dark := time.Duration(0) // since the operations went on
	for i := range times {
		kind, length := kinds[i%len(kinds)], time.Duration(float64(50*time.Millisecond)*math.Pow(60, r.Float64()))
		if i == 0 { // until the devices give up
			kind, length = "silent", 3*timeout/2
		}
		if dark+length > 3*timeout/2 {
			goOn(r, j.procs, -2)
			dark = 0
		}
		began := now()
		if !flap(ctx, r, j, w, kind, length) {
			return
		}
		lasted := now() - began
		if dark += lasted; dark > 2*timeout { // this machine is busy
			r.count("flaps that became too long", 1)
			return
		}
		if !wait(ctx, r.about(80*time.Millisecond)) || !noneFailed(r, j, "beside flaps") {
			return
		}
	}
	if w.pairs() > 1 && !unplug(ctx, r, j, w, 3*timeout) {
		return
	}
	if fabric == "auto" && !withoutWires(r, j, w) {
		return
	}
	if railsBack(r, j, upToUse, acrossFlap) && fabric == "verbs" && (r.quick || r.IntN(3) == 0) {
		killWhileReplaced(ctx, r, j, w)
		return
	}
	j.finish(r)
}

// flap disturbs a wire or all of them for some time.
func flap(ctx context.Context, r *round, j *job, w *wires, kind string, length time.Duration) bool {
	pairs := []int{r.IntN(w.pairs())}
	if w.pairs() > 1 && r.IntN(3) == 0 {
		pairs = []int{0, 1}
	}
	r.count("flaps: "+kind, 1)
	w.tell(j, pairs, "down")
	for _, p := range pairs {
		if err := w.disturb(kind, 2*p+r.IntN(2), r.IntN(3) == 0); err != nil {
			r.fault("%s: %v", kind, err)
			return false
		}
	}
	going := wait(ctx, length)
	if r.failed(w.restore()) {
		return false
	}
	w.tell(j, pairs, "up")
	return going
}

// unplug takes one wire away for longer than a connection waits for it, and then the other one: rail 0 continues
// over the other device, and comes back.
func unplug(ctx context.Context, r *round, j *job, w *wires, length time.Duration) bool {
	first := r.IntN(2)
	for _, pair := range []int{first, 1 - first} {
		if !settled(r, j) {
			return false
		}
		r.count("wires taken away", 1)
		w.tell(j, []int{pair}, "down")
		err := w.disturb("down", 2*pair+r.IntN(2), r.IntN(2) == 0)
		if err == nil && wait(ctx, length) {
			goOn(r, j.procs, -2)
		}
		if r.failed(errors.Join(err, w.restore())) {
			return false
		}
		w.tell(j, []int{pair}, "up")
		if !noneFailed(r, j, "without a wire") {
			return false
		}
	}
	return true
}

// withoutWires takes all wires away, until tcp carries rail 0 on both sides.
func withoutWires(r *round, j *job, w *wires) bool {
	if !settled(r, j) {
		return false
	}
	r.count("rounds in which tcp carries rail 0", 1)
	w.tell(j, []int{0, 1}, "down")
	var err error
	for i := range w.ends {
		err = errors.Join(err, w.disturb("silent", i, false))
	}
	if err == nil {
		for _, p := range j.procs {
			err = errors.Join(err, p.await(endLimit, 1, "tcp carries rail 0", is(railCarried)))
		}
		goOn(r, j.procs, -2)
	}
	if r.failed(errors.Join(err, w.restore())) {
		return false
	}
	w.tell(j, []int{0, 1}, "up")
	if !noneFailed(r, j, "without wires") {
		return false
	}
	for _, p := range j.procs {
		if r.failed(p.await(startLimit, len(p.find(is(railCarried))), "verbs carries rail 0 again", is(railReturned))) {
			return false
		}
	}
	return noneFailed(r, j, "beside the return to verbs")
}

// killWhileReplaced kills a rank soon after rail 0 is lost.
func killWhileReplaced(ctx context.Context, r *round, j *job, w *wires) {
	victim := r.IntN(2)
	survivor := j.procs[1-victim]
	lost := func(e event) bool { return e.Op == railsLost && e.Text == "0" }
	seen := len(survivor.find(lost))
	for i := range w.ends {
		if r.failed(w.disturb("silent", i, false)) {
			return
		}
	}
	if r.failed(survivor.await(endLimit, seen+1, "rail 0 is lost", lost)) {
		return
	}
	wait(ctx, r.about(50*time.Millisecond))
	if r.IntN(2) == 0 {
		if r.failed(w.restore()) {
			return
		}
		wait(ctx, r.about(50*time.Millisecond))
	}
	killed := now()
	_ = j.procs[victim].cmd.Process.Kill()
	told(r, survivor, victim, killed, "gone", killedToError)
	j.finish(r, victim)
	<-j.procs[victim].ended
	r.hear(j.procs[victim], "")
}

// wires are RDMA devices in a guest of tests/softroce, in pairs with a wire between the two, one or two of
// them. Rank r has the r-th device of each pair; with one pair, its second rail is the other device.
type wires struct {
	devices []string
	ends    []*wireEnd
}

// wireEnd is the network interface below a device, and what the kernel forgets with it.
type wireEnd struct {
	link   netlink.Link
	addr   netlink.Addr
	routes []netlink.Route
	neighs []netlink.Neigh
}

func findWires() (*wires, error) {
	w := &wires{devices: strings.Split(os.Getenv("RMA_SOFTROCE_DEVICES"), ",")}
	if n := len(w.devices); n != 2 && n != 4 {
		return nil, errors.New("no pairs of RDMA devices with wires between them: make chaos VM=qemu PARTS=ports")
	}
	for _, d := range w.devices {
		name, err := os.ReadFile("/sys/class/infiniband/" + d + "/parent")
		if err != nil {
			return nil, err
		}
		e := &wireEnd{}
		if e.link, err = netlink.LinkByName(strings.TrimSpace(string(name))); err != nil {
			return nil, err
		}
		i := e.link.Attrs().Index
		addrs, err := netlink.AddrList(e.link, unix.AF_INET)
		if err != nil || len(addrs) != 1 {
			return nil, fmt.Errorf("%s has not one address: %v, %w", name, addrs, err)
		}
		e.addr = netlink.Addr{IPNet: addrs[0].IPNet}
		all, err := netlink.RouteListFiltered(unix.AF_INET, &netlink.Route{LinkIndex: i}, netlink.RT_FILTER_OIF|netlink.RT_FILTER_TABLE)
		for _, x := range all {
			if x.Table != unix.RT_TABLE_LOCAL {
				x.Flags = 0
				e.routes = append(e.routes, x)
			}
		}
		neighs, nerr := netlink.NeighList(i, unix.AF_INET)
		for _, x := range neighs {
			if x.State == netlink.NUD_PERMANENT {
				e.neighs = append(e.neighs, x)
			}
		}
		if err := errors.Join(err, nerr); err != nil || len(e.routes) != 1 || len(e.neighs) != 1 {
			return nil, fmt.Errorf("%s: routes %v, neighbours %v: %w", name, e.routes, e.neighs, err)
		}
		w.ends = append(w.ends, e)
	}
	return w, nil
}

func (w *wires) pairs() int { return len(w.ends) / 2 }

func (w *wires) wrap(rank int, argv []string) []string {
	rail := w.devices[1-rank]
	if w.pairs() > 1 {
		rail = w.devices[2+rank]
	}
	return append([]string{"env", fmt.Sprintf("RMA_HOST=host%d", rank), "RMA_IBV_DEVICE=" + w.devices[rank], "RMA_RAILS=" + rail}, argv...)
}

// tell tells the ranks what happens to the rails of those wires.
func (w *wires) tell(j *job, pairs []int, state string) {
	if w.pairs() == 1 {
		pairs = []int{0, 1}
	}
	for _, p := range j.procs {
		for _, i := range pairs {
			_, _ = fmt.Fprintf(p.in, "interface %d %s\n", i, state)
		}
	}
}

// disturb takes something away from an end, or from both of its wire.
func (w *wires) disturb(kind string, end int, both bool) error {
	if both {
		if err := w.disturb(kind, end^1, false); err != nil {
			return err
		}
	}
	e := w.ends[end]
	switch kind {
	case "down": // without its route first, rdma_rxe of Linux 6.1 may loop in the kernel for ever (docs/softroce.md)
		return errors.Join(netlink.RouteDel(&e.routes[0]), netlink.LinkSetDown(e.link))
	case "silent": // nobody has that hardware address
		x := e.neighs[0]
		x.HardwareAddr = net.HardwareAddr{2, 0, 0, 0, 0, 1}
		return netlink.NeighSet(&x)
	case "moved": // another address takes its place in the device's table
		return errors.Join(netlink.AddrDel(e.link, &e.addr), netlink.AddrAdd(e.link, e.guest()))
	}
	return netlink.AddrDel(e.link, &e.addr)
}

// guest is the address that another one makes room for.
func (e *wireEnd) guest() *netlink.Addr {
	ip := append(net.IP{}, e.addr.IP.To4()...)
	ip[3] += 100
	return &netlink.Addr{IPNet: &net.IPNet{IP: ip, Mask: e.addr.Mask}}
}

// restore gives all ends what was taken away.
func (w *wires) restore() error {
	var errs []error
	for _, e := range w.ends {
		errs = append(errs, netlink.LinkSetUp(e.link), netlink.AddrReplace(e.link, &e.addr))
		if err := netlink.AddrDel(e.link, e.guest()); !errors.Is(err, unix.EADDRNOTAVAIL) {
			errs = append(errs, err)
		}
	}
	for _, e := range w.ends {
		errs = append(errs, netlink.RouteReplace(&e.routes[0]), netlink.NeighSet(&e.neighs[0]))
	}
	return errors.Join(errs...)
}
