//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
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

// netem puts two hosts on a bad network. In some rounds it cuts the network in both
// directions or forges the end of a connection. Packets that are lost, late, duplicated,
// reordered or corrupted cause delay only; a cut or a forged end causes an error on both
// sides.
func netem(ctx context.Context, r *round) {
	n, err := newNet(r.no)
	if err != nil {
		r.leaveOut(err)
		return
	}
	defer n.close()
	shape, then := pick(r, shapes...), pick(r, "", "", "pause", "cut", "reset")
	s := jobSpec{Ranks: 2, Fabric: "tcp", Root: "unix", Wrap: n.wrap}
	s.Work = work{Ops: some(r, 1+r.IntN(4), pairNames()), Seed: r.Uint64(), Max: 1 << (12 + r.IntN(6))}
	patience := 20 * time.Second // a segment that is lost four times is late by three seconds
	if then == "cut" {
		patience = peerTimeout
		shape = "delay 5ms 2ms" // nothing that resembles the cut, and no queue to deliver behind it
	}
	s.Env = []string{"RMA_PEER_TIMEOUT=" + patience.String()}
	if err := n.shape(shape); err != nil {
		r.leaveOut(err)
		return
	}
	r.count(shape, 1)
	j := begin(r, s)
	if j == nil {
		return
	}
	defer j.kill()
	wait(ctx, 200*time.Millisecond+time.Duration(r.ExpFloat64()*float64(300*time.Millisecond)))
	did := fmt.Sprintf("with %q", shape)
	switch then {
	case "cut":
		cut := now()
		if err := n.shape("loss 100%"); err != nil {
			r.fault("%v", err)
			return
		}
		for i, p := range j.procs {
			told(r, p, 1-i, cut+patience, "gone", cutToError)
		}
		j.finish(r, endLimit)
		return
	case "reset":
		n.resets(r, j)
		j.finish(r, endLimit)
		return
	case "pause":
		err := n.shape("loss 100%")
		wait(ctx, 500*time.Millisecond)
		if err := errors.Join(err, n.shape(shape)); err != nil {
			r.fault("%v", err)
			return
		}
		did += " and a cut of half a second"
	}
	goOn(r, j, j.procs, -2)
	for _, p := range j.procs {
		for _, e := range p.find(is("fail")) {
			r.fault("rank %d: %s failed %s: %s", p.rank, e.Op, did, e.Text)
		}
	}
	j.finish(r, endLimit)
}

// resets forges the end of all connections between the two hosts.
func (n *twoHosts) resets(r *round, j *job) {
	var forged atomic.Int64
	began := now()
	t, err := n.tap(1, "wire", func(t *tap, s segment) {
		if !s.syn && !s.rst {
			t.send(s.reset())
			forged.Add(1)
		}
	})
	if err != nil {
		r.fault("%v", err)
		return
	}
	defer t.close()
	for i, p := range j.procs {
		told(r, p, 1-i, began, "gone", resetToError)
	}
	r.count("forged resets", int(forged.Load()))
}

// shape applies a disturbance to packets sent by both ends of the wire.
func (n *twoHosts) shape(how string) error {
	for _, name := range n.name {
		args := append([]string{"-n", name, "qdisc", "replace", "dev", "wire", "root", "netem"}, strings.Fields(how)...)
		if out, err := exec.Command("tc", args...).CombinedOutput(); err != nil {
			if strings.Contains(string(out), "qdisc kind is unknown") {
				return errors.New("this kernel has no netem: make chaos VM=qemu PARTS=netem")
			}
			return fmt.Errorf("tc %v: %w: %s", args, err, out)
		}
	}
	return nil
}
