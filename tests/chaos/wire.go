//go:build linux

package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"time"
)

// peerTimeout is Config.PeerTimeout's default.
const peerTimeout = 2 * time.Second

// survivable is the longest cut that certainly breaks no connection: TCP retransmits at
// intervals that double, from a fifth of a second, so the first retransmission after a cut
// follows within the cut's length plus that.
const survivable = (peerTimeout - 400*time.Millisecond) / 2

// wire takes the carrier from the wire between two hosts, which are network namespaces
// here. A short cut is survived; a long one ends the connections across it, on both sides,
// like the death of the peer.
func wire(ctx context.Context, r *round) {
	n, err := newNet(r.no, 1)
	if err != nil {
		r.leaveOut(err)
		return
	}
	defer n.close()
	s := jobSpec{Ranks: 2, Fabric: "tcp", Root: "unix"} // the wire-up is not cut
	s.Work = work{Ops: some(r, 1+r.IntN(4), pairNames()), Seed: r.Uint64(), Max: 1 << (12 + r.IntN(9))}
	s.Wrap = n.wrap
	j := begin(r, s)
	if j == nil {
		return
	}
	defer j.kill()
	wait(ctx, r.about(50*time.Millisecond))
	length := pick(r, 100*time.Millisecond, 500*time.Millisecond, 8*time.Second)
	cut := now()
	if r.failed(n.set(0, 0, "down")) {
		return
	}
	wait(ctx, length)
	if length > 2*peerTimeout {
		for i, p := range j.procs {
			told(r, p, 1-i, cut+peerTimeout, "gone", cutToError)
		}
		j.finish(r)
		return
	}
	if r.failed(n.set(0, 0, "up")) {
		return
	}
	if lasted := now() - cut; lasted > survivable { // this machine is busy
		r.count("short cuts that became long", 1)
		for i, p := range j.procs {
			blamed(r, p, 1-i, "gone")
		}
		j.finish(r)
		return
	}
	unharmed(r, j, fmt.Sprintf("after a cut of %v", length))
}

// twoHosts are two network namespaces with wires between them, each of which is a network.
type twoHosts struct{ name [2]string }

// wireName returns the name of both ends of a wire.
func wireName(wire int) string { return fmt.Sprintf("wire%d", wire) }

// hostAddr returns the address of a host at a wire.
func hostAddr(host, wire int) string { return fmt.Sprintf("10.213.%d.%d", wire, host+1) }

// newNet returns two hosts with so many wires between them.
func newNet(no, wires int) (*twoHosts, error) {
	if os.Getuid() != 0 {
		return nil, fmt.Errorf("network namespaces need root")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		return nil, fmt.Errorf("iproute2 is not installed")
	}
	n := &twoHosts{}
	for i := range n.name {
		n.name[i] = fmt.Sprintf("rma-chaos-%d-%d-%d", os.Getpid(), no, i)
		if err := ip("netns", "add", n.name[i]); err != nil {
			n.close()
			return nil, err
		}
		if err := ip("-n", n.name[i], "link", "set", "lo", "up"); err != nil {
			n.close()
			return nil, err
		}
	}
	for w := range wires {
		if err := n.connect(w); err != nil {
			n.close()
			return nil, err
		}
	}
	return n, nil
}

// connect puts a wire between the hosts.
func (n *twoHosts) connect(w int) error {
	d := wireName(w)
	if err := ip("link", "add", d, "netns", n.name[0], "type", "veth", "peer", "name", d, "netns", n.name[1]); err != nil {
		return err
	}
	for i, name := range n.name {
		if err := ip("-n", name, "addr", "add", hostAddr(i, w)+"/24", "dev", d); err != nil {
			return err
		}
		if err := ip("-n", name, "link", "set", d, "up"); err != nil {
			return err
		}
	}
	return nil
}

// wrap returns the command that starts a rank on the host of its number.
func (n *twoHosts) wrap(rank int, argv []string) []string { return n.on(rank, argv) }

// on returns the command that starts a rank on the i-th host.
func (n *twoHosts) on(i int, argv []string) []string {
	return append([]string{"ip", "netns", "exec", n.name[i], "env", "RMA_TCP_BIND=" + hostAddr(i, 0)}, argv...)
}

// listen returns a listener on the first host that the second one can reach.
func (n *twoHosts) listen() (ln net.Listener, err error) {
	err = n.in(0, func() (err error) {
		ln, err = net.Listen("tcp", hostAddr(0, 0)+":0")
		return err
	})
	return ln, err
}

// set takes a host's end of a wire up or down; both ends lose the carrier while one is down.
// The end keeps its address.
func (n *twoHosts) set(host, wire int, state string) error {
	return ip("-n", n.name[host], "link", "set", wireName(wire), state)
}

func (n *twoHosts) close() {
	for _, name := range n.name {
		if name != "" {
			_ = ip("netns", "del", name)
		}
	}
}

func ip(args ...string) error {
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %v: %w: %s", args, err, out)
	}
	return nil
}
