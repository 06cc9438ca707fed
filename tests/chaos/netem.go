//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"time"
)

// resetToError is the time from a forged end of a connection to the error.
var resetToError = figure{"reset to error", 500 * time.Millisecond, tellLimit}

// shapes are disturbances of packets by a bad network, in the syntax of tc. TCP recovers
// from all of them.
var shapes = []string{
	"delay 5ms 2ms", "rate 50mbit", "loss 1%", "loss 3%", "duplicate 2%", "corrupt 1%",
	"delay 2ms reorder 25% 50%", "loss 1% duplicate 1% corrupt 0.5% delay 1ms 1ms reorder 10%",
}

// roceShapes are those of SoftRoCE, which sends everything from a lost packet on again, gives
// up after seven losses without an acknowledgement between them, and takes reordered packets
// for lost ones.
var roceShapes = []string{
	"delay 1ms", "rate 200mbit", "loss 0.5%", "loss 0.5% duplicate 0.5%", "duplicate 2%", "corrupt 0.3%",
	"delay 300us reorder 99% loss 0.3% duplicate 0.3%",
}

// network is what joins the two ranks of a netem round.
type network interface {
	wrap(rank int, argv []string) []string
	ends() [][]string // of the wire, as tc's arguments: a namespace and a device
	close()
}

// netem puts two hosts, or two RDMA devices of a guest, on a bad network. In some rounds it
// cuts the network in both directions or forges the end of a connection. Packets that are
// lost, late, duplicated, reordered or corrupted cause delay only; a cut or a forged end
// causes an error on both sides.
func netem(ctx context.Context, r *round) {
	fabric := pick(r, "tcp", "verbs")
	if fabric == "verbs" {
		d, err := findDevices()
		if err == nil {
			netemOn(ctx, r, fabric, d, pick(r, roceShapes...), pick(r, "", "", "pause", "cut"))
			return
		}
		r.leaveOut(err)
	}
	n, err := newNet(r.no, 1)
	if err != nil {
		r.leaveOut(err)
		return
	}
	netemOn(ctx, r, "tcp", n, pick(r, shapes...), pick(r, "", "", "pause", "cut", "reset"))
}

func netemOn(ctx context.Context, r *round, fabric string, n network, shape, then string) {
	defer n.close()
	s := jobSpec{Ranks: 2, Fabric: fabric, Root: "unix", Wrap: n.wrap}
	s.Work = work{Ops: some(r, 1+r.IntN(4), pairNames()), Seed: r.Uint64(), Max: 1 << (12 + r.IntN(6))}
	timeout := 20 * time.Second // a segment that is lost four times is late by three seconds
	if then == "cut" {
		timeout = peerTimeout
		shape = "delay 5ms" // nothing that resembles the cut, and no queue to deliver behind it
	}
	s.Env = []string{"RMA_PEER_TIMEOUT=" + timeout.String()}
	if err := disturb(n, shape); err != nil {
		r.leaveOut(err)
		return
	}
	r.count(fabric+": "+shape, 1)
	j := begin(r, s)
	if j == nil {
		return
	}
	defer j.kill()
	wait(ctx, 200*time.Millisecond+r.about(300*time.Millisecond))
	did := fmt.Sprintf("with %q", shape)
	switch then {
	case "cut":
		if r.failed(disturb(n, "loss 100%")) {
			return
		}
		cut := now() // to start tc takes half a second in an emulated guest
		for i, p := range j.procs {
			told(r, p, 1-i, cut+timeout, "gone", cutToError)
		}
		j.finish(r)
		return
	case "reset":
		n.(*twoHosts).resets(r, j)
		j.finish(r)
		return
	case "pause":
		err := disturb(n, "loss 100%")
		wait(ctx, 500*time.Millisecond)
		if r.failed(errors.Join(err, disturb(n, shape))) {
			return
		}
		did += " and a cut of half a second"
	}
	unharmed(r, j, did)
}

// resets forges the end of all connections between the two hosts.
func (n *twoHosts) resets(r *round, j *job) {
	var forged atomic.Int64
	began := now()
	t, err := n.tap(1, wireName(0), func(t *tap, s segment) {
		if !s.syn && !s.rst {
			t.send(s.reset())
			forged.Add(1)
		}
	})
	if r.failed(err) {
		return
	}
	defer t.close()
	for i, p := range j.procs {
		told(r, p, 1-i, began, "gone", resetToError)
	}
	r.count("forged resets", int(forged.Load()))
}

// disturb applies a disturbance to packets sent by both ends of the wire.
func disturb(n network, how string) error {
	for _, end := range n.ends() {
		args := append([]string{"-n", end[0], "qdisc", "replace", "dev", end[1], "root", "netem"}, strings.Fields(how)...)
		if end[0] == "" {
			args = args[2:]
		}
		if out, err := exec.Command("tc", args...).CombinedOutput(); err != nil {
			if strings.Contains(string(out), "qdisc kind is unknown") {
				return errors.New("this kernel has no netem: make chaos VM=qemu PARTS=netem")
			}
			return fmt.Errorf("tc %v: %w: %s", args, err, out)
		}
	}
	return nil
}

func (n *twoHosts) ends() [][]string {
	return [][]string{{n.name[0], wireName(0)}, {n.name[1], wireName(0)}}
}

// devices are two RDMA devices with a wire between them, in a guest of tests/softroce.
type devices [2]string

func findDevices() (devices, error) {
	names := strings.Split(os.Getenv("RMA_SOFTROCE_DEVICES"), ",")
	if len(names) < 2 {
		return devices{}, errors.New("no two RDMA devices with a wire between them: make chaos VM=qemu PARTS=netem")
	}
	return devices(names[:2]), nil
}

func (d devices) wrap(rank int, argv []string) []string {
	return append([]string{"env", "RMA_IBV_DEVICE=" + d[rank]}, argv...)
}

// ends returns the network interfaces below the devices.
func (d devices) ends() (ends [][]string) {
	for _, dev := range d {
		netdev, _ := os.ReadFile("/sys/class/infiniband/" + dev + "/parent")
		ends = append(ends, []string{"", strings.TrimSpace(string(netdev))})
	}
	return ends
}

// close removes the disturbance.
func (d devices) close() {
	for _, end := range d.ends() {
		_ = exec.Command("tc", "qdisc", "del", "dev", end[1], "root").Run()
	}
}
