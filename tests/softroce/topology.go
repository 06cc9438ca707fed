//go:build linux

package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// wireMTU has room for RoCE's largest MTU, 4096, and the headers.
const wireMTU = 4200

// endpoint is one RDMA device and the network interface below it.
type endpoint struct {
	dev, netdev, addr string
}

// layout describes a topology. It is data, so that it can be tested and printed without a
// kernel that could build it.
type layout struct {
	name string
	ends []endpoint // in this guest
	bits int        // prefix length of the addresses
	peer string     // the other guest's address, or ""
}

// layoutOf returns topology name as seen by node.
func layoutOf(name string, node int) (layout, error) {
	switch name {
	case "one":
		return layout{name: name, bits: 24, ends: []endpoint{{"rxe0", "sr0", nodeAddr(0)}}}, nil
	case "two":
		return layout{name: name, bits: 32, ends: []endpoint{
			{"rxe0", "sr0", nodeAddr(0)},
			{"rxe1", "sr1", nodeAddr(1)},
		}}, nil
	case "rails":
		l := layout{name: name, bits: 32}
		for i := range 4 {
			l.ends = append(l.ends, endpoint{fmt.Sprintf("rxe%d", i), fmt.Sprintf("sr%d", i), fmt.Sprintf("10.9.%d.%d", i/2, i%2+1)})
		}
		return l, nil
	case "guests":
		return layout{name: name, bits: 24, peer: nodeAddr(1 - node),
			ends: []endpoint{{"rxe0", "", nodeAddr(node)}}}, nil // the interface is the machine's NIC
	}
	return layout{}, fmt.Errorf("unknown topology %q", name)
}

func nodeAddr(node int) string { return fmt.Sprintf("10.9.0.%d", node+1) }

// policyRule is one line of `ip rule`.
type policyRule struct {
	pref     int
	table    int
	iif      string
	src, dst string
}

// tableTo is the routing table of packets to the first end of the layout; that of the next one
// has the next number.
const (
	tableTo    = 101
	tableLocal = unix.RT_TABLE_LOCAL
)

// pairs returns the number of veth pairs. Pair i joins the ends 2i and 2i+1.
func (l layout) pairs() int {
	if l.name == "two" || l.name == "rails" {
		return len(l.ends) / 2
	}
	return 0
}

// rules returns the routing rules by which packets between two addresses of one host cross
// their pair: the local table, which would short-cut them, is consulted only for packets that
// arrive over a pair, and for all else last. Rule 0, the local table first, must be
// removed while these are in place.
func (l layout) rules() (rules []policyRule) {
	if l.pairs() == 0 {
		return nil
	}
	for i, e := range l.ends {
		rules = append(rules, policyRule{pref: 10 + i, iif: e.netdev, table: tableLocal})
	}
	for i, e := range l.ends {
		r := policyRule{pref: 20 + i, dst: e.addr, table: tableTo + i}
		if l.name == "two" { // with rails, programs bind no source: the route sets it
			r.src = l.ends[i^1].addr
		}
		rules = append(rules, r)
	}
	return append(rules, policyRule{pref: 100, table: tableLocal})
}

// sysctls returns the settings that a topology needs, in order.
func (l layout) sysctls() [][2]string {
	var s [][2]string
	for _, e := range l.ends {
		if e.netdev != "" { // no duplicate detection: its delay leaves devices without addresses
			s = append(s, [2]string{"net/ipv6/conf/" + e.netdev + "/accept_dad", "0"})
		}
	}
	if l.pairs() > 0 {
		s = append(s, [2]string{"net/ipv4/conf/all/rp_filter", "0"})
		for _, e := range l.ends {
			s = append(s,
				[2]string{"net/ipv4/conf/" + e.netdev + "/rp_filter", "0"},
				[2]string{"net/ipv4/conf/" + e.netdev + "/accept_local", "1"})
		}
	}
	return s
}

// topology is a layout that has been built. lower removes it.
type topology struct {
	layout
	undo []func() error
}

// env returns the variables that describe the topology to programs.
func (t *topology) env(p Plan) []string {
	var devs, addrs []string
	for _, e := range t.ends {
		devs, addrs = append(devs, e.dev), append(addrs, e.addr)
	}
	env := []string{
		"RMA_SOFTROCE=" + p.Kind,
		"RMA_SOFTROCE_TOPOLOGY=" + t.name,
		"RMA_SOFTROCE_DEVICES=" + strings.Join(devs, ","),
		"RMA_SOFTROCE_ADDRS=" + strings.Join(addrs, ","),
		"RMA_RDMA_DEVICE=" + devs[0], // for the two ends of the project's tests
		"RMA_RDMA_DEVICE2=" + devs[len(devs)-1],
	}
	if p.Out != "" {
		env = append(env, "RMA_SOFTROCE_OUT="+p.Out)
	}
	if t.peer != "" {
		env = append(env, fmt.Sprintf("NODE=%d", p.Node), "ME="+t.ends[0].addr, "PEER="+t.peer)
	}
	return env
}

// raise builds topology name. On failure it removes all parts of it.
func raise(name string, node int) (*topology, error) {
	l, err := layoutOf(name, node)
	if err != nil {
		return nil, err
	}
	t := &topology{layout: l}
	if err := t.build(); err != nil {
		return nil, errors.Join(fmt.Errorf("make %s: %w", describe(name), err), t.lower())
	}
	return t, nil
}

func describe(topology string) string {
	switch topology {
	case "one":
		return "one device"
	case "two":
		return "two devices"
	case "rails":
		return "two pairs of devices"
	}
	return "two guests"
}

// lower undoes raise in reverse order.
func (t *topology) lower() error {
	var errs []error
	for i := len(t.undo) - 1; i >= 0; i-- {
		errs = append(errs, t.undo[i]())
	}
	t.undo = nil
	return errors.Join(errs...)
}

func (t *topology) build() error {
	if lo, err := netlink.LinkByName("lo"); err == nil {
		if err := netlink.LinkSetUp(lo); err != nil {
			return fmt.Errorf("set lo up: %w", err)
		}
	}
	if err := t.addInterfaces(); err != nil {
		return err
	}
	for _, s := range t.sysctls() {
		if err := t.sysctl(s[0], s[1]); err != nil {
			return err
		}
	}
	for _, e := range t.ends {
		link, err := netlink.LinkByName(e.netdev)
		if err != nil {
			return fmt.Errorf("find %s: %w", e.netdev, err)
		}
		if err := netlink.LinkSetMTU(link, wireMTU); err != nil {
			return fmt.Errorf("set MTU of %s: %w", e.netdev, err)
		}
		addr := &netlink.Addr{IPNet: &net.IPNet{IP: net.ParseIP(e.addr).To4(), Mask: net.CIDRMask(t.bits, 32)}}
		if err := netlink.AddrAdd(link, addr); err != nil {
			return fmt.Errorf("give %s to %s: %w", e.addr, e.netdev, err)
		}
		if err := netlink.LinkSetUp(link); err != nil {
			return fmt.Errorf("set %s up: %w", e.netdev, err)
		}
	}
	if t.pairs() > 0 {
		if err := t.route(); err != nil {
			return err
		}
	}
	for _, e := range t.ends {
		if err := netlink.RdmaLinkAdd(e.dev, "rxe", e.netdev); err != nil {
			return fmt.Errorf("add %s on %s: %w", e.dev, e.netdev, err)
		}
		t.undo = append(t.undo, func() error { return netlink.RdmaLinkDel(e.dev) })
	}
	for _, e := range t.ends {
		if err := waitDevice(e, upLimit); err != nil {
			return err
		}
	}
	if t.peer != "" {
		return waitPeer(t.peer, upLimit)
	}
	return nil
}

func (t *topology) addInterfaces() error {
	switch t.name {
	case "one":
		attrs := netlink.NewLinkAttrs()
		attrs.Name = t.ends[0].netdev
		return t.addLink(&netlink.Dummy{LinkAttrs: attrs})
	case "guests":
		nic, err := machineNIC()
		t.ends[0].netdev = nic
		return err
	}
	for i := range t.pairs() {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.NumTxQueues, attrs.NumRxQueues = t.ends[2*i].netdev, 1, 1
		if err := t.addLink(&netlink.Veth{LinkAttrs: attrs, PeerName: t.ends[2*i+1].netdev}); err != nil {
			return err
		}
	}
	return nil
}

func (t *topology) addLink(link netlink.Link) error {
	if err := netlink.LinkAdd(link); err != nil {
		return fmt.Errorf("add %s %s: %w", link.Type(), link.Attrs().Name, err)
	}
	t.undo = append(t.undo, func() error { return netlink.LinkDel(link) })
	return nil
}

// machineNIC finds the interface backed by a guest's virtual hardware.
func machineNIC() (string, error) {
	links, err := netlink.LinkList()
	if err != nil {
		return "", err
	}
	for _, l := range links {
		name := l.Attrs().Name
		if _, err := os.Stat(filepath.Join("/sys/class/net", name, "device")); err == nil {
			return name, nil
		}
	}
	return "", errors.New("this guest has no network interface")
}

// route installs the rules, routes and neighbours of pairs of devices in one host.
func (t *topology) route() error {
	for i, to := range t.ends {
		from := t.ends[i^1]
		link, err := netlink.LinkByName(from.netdev)
		if err != nil {
			return err
		}
		far, err := netlink.LinkByName(to.netdev)
		if err != nil {
			return err
		}
		dst := &net.IPNet{IP: net.ParseIP(to.addr).To4(), Mask: net.CIDRMask(32, 32)}
		// routes and neighbours are removed with the interface
		if err := netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: dst, Table: tableTo + i,
			Src: net.ParseIP(from.addr), Scope: netlink.SCOPE_LINK}); err != nil {
			return fmt.Errorf("route %s to %s: %w", from.addr, to.addr, err)
		}
		if err := netlink.NeighSet(&netlink.Neigh{LinkIndex: link.Attrs().Index, State: netlink.NUD_PERMANENT,
			IP: dst.IP, HardwareAddr: far.Attrs().HardwareAddr}); err != nil {
			return fmt.Errorf("neighbour %s: %w", to.addr, err)
		}
	}
	for _, r := range t.rules() {
		if err := t.addRule(r); err != nil {
			return err
		}
	}
	first := kernelRule(policyRule{pref: 0, table: tableLocal})
	if err := netlink.RuleDel(first); err != nil {
		return fmt.Errorf("remove rule 0: %w", err)
	}
	t.undo = append(t.undo, func() error { return netlink.RuleAdd(first) })
	return nil
}

func (t *topology) addRule(r policyRule) error {
	k := kernelRule(r)
	if err := netlink.RuleAdd(k); err != nil {
		return fmt.Errorf("add rule %d: %w", r.pref, err)
	}
	t.undo = append(t.undo, func() error { return netlink.RuleDel(k) })
	return nil
}

func kernelRule(r policyRule) *netlink.Rule {
	k := netlink.NewRule()
	k.Family, k.Priority, k.Table, k.IifName = unix.AF_INET, r.pref, r.table, r.iif
	host := func(s string) *net.IPNet {
		if s == "" {
			return nil
		}
		return &net.IPNet{IP: net.ParseIP(s).To4(), Mask: net.CIDRMask(32, 32)}
	}
	k.Src, k.Dst = host(r.src), host(r.dst)
	return k
}

// sysctl sets a value under /proc/sys and records the old one.
func (t *topology) sysctl(name, value string) error {
	path := filepath.Join("/proc/sys", name)
	old, err := os.ReadFile(path)
	if os.IsNotExist(err) && strings.HasPrefix(name, "net/ipv6/") {
		return nil // a host without IPv6
	}
	if err == nil {
		err = os.WriteFile(path, []byte(value), 0o644)
	}
	if err != nil {
		return fmt.Errorf("set %s: %w", name, err)
	}
	t.undo = append(t.undo, func() error {
		err := os.WriteFile(path, old, 0o644)
		if os.IsNotExist(err) {
			return nil // removed with its interface
		}
		return err
	})
	return nil
}

// crossed returns the number of bytes received over the wires of this guest; 0 if it has
// none.
func (t *topology) crossed() (n int64) {
	if t.name == "one" {
		return 0
	}
	for _, e := range t.ends {
		var v int64
		if b, err := os.ReadFile(filepath.Join("/sys/class/net", e.netdev, "statistics/rx_bytes")); err == nil {
			fmt.Sscan(string(b), &v)
		}
		n += v
	}
	return n
}

// limit bounds the rate of each pair of the topology, or of what this guest sends, in bytes a second.
func (t *topology) limit(rates []int64) error {
	for i, e := range t.ends {
		if i/2 >= len(rates) {
			break
		}
		// room for all that senders have in flight: a queue that drops packets measures retransmission
		if err := tc("qdisc", "replace", "dev", e.netdev, "root", "tbf", "rate", fmt.Sprint(8*rates[i/2])+"bit", "burst", "16kb", "limit", "64mb"); err != nil {
			return err
		}
	}
	return nil
}

// shape applies netem to every wire of this guest; "" removes it.
func (t *topology) shape(netem string) error {
	for _, e := range t.ends {
		args := []string{"qdisc", "replace", "dev", e.netdev, "root", "netem"}
		args = append(args, strings.Fields(netem)...)
		if netem == "" {
			args = []string{"qdisc", "del", "dev", e.netdev, "root"}
		}
		if err := tc(args...); err != nil {
			return err
		}
	}
	return nil
}

// tc runs the program of that name.
func tc(args ...string) error {
	path := findProgram("tc")
	if path == "" {
		return fmt.Errorf("no tc here: %s", aptLine([]string{"iproute2"}))
	}
	if out, err := exec.Command(path, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("tc %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// upLimit bounds the waits for devices and the other guest: it ends a hang, and is ample for
// emulated guests on a busy machine.
const upLimit = 3 * time.Minute

// waitDevice waits until the port is active and has its IPv4 address as GID: the kernel
// fills the table shortly after the device appears.
func waitDevice(e endpoint, limit time.Duration) error {
	dir := filepath.Join("/sys/class/infiniband", e.dev, "ports/1")
	want := mappedGID(e.addr)
	return poll(limit, fmt.Sprintf("%s has no active port with GID %s", e.dev, want), func() bool {
		state, _ := os.ReadFile(filepath.Join(dir, "state"))
		if !strings.Contains(string(state), "ACTIVE") {
			return false
		}
		for i := range 8 {
			gid, _ := os.ReadFile(filepath.Join(dir, "gids", fmt.Sprint(i)))
			if strings.TrimSpace(string(gid)) == want {
				return true
			}
		}
		return false
	})
}

// mappedGID is an IPv4 address as sysfs prints its GID.
func mappedGID(addr string) string {
	ip := net.ParseIP(addr).To4()
	return fmt.Sprintf("0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x", ip[0], ip[1], ip[2], ip[3])
}

// waitPeer waits until the other guest answers: with a refusal, because no process listens
// on that port.
func waitPeer(addr string, limit time.Duration) error {
	return poll(limit, "the other guest does not answer at "+addr, func() bool {
		conn, err := net.DialTimeout("tcp", net.JoinHostPort(addr, "9"), 2*time.Second)
		if err == nil {
			conn.Close()
		}
		return err == nil || errors.Is(err, syscall.ECONNREFUSED)
	})
}

func poll(limit time.Duration, failure string, ok func() bool) error {
	for end := time.Now().Add(limit); !ok(); {
		if time.Now().After(end) {
			return fmt.Errorf("%s after %v", failure, limit)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return nil
}
