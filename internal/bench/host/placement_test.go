package host

import (
	"fmt"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/cpu"
)

// twoNodes adds to a machine two nodes of two cores with two threads each.
func twoNodes(root fstest.MapFS) {
	root["sys/devices/system/cpu/online"] = file("0-7")
	for c := range 8 {
		dir := fmt.Sprintf("sys/devices/system/cpu/cpu%d/topology/", c)
		root[dir+"thread_siblings_list"] = file(fmt.Sprintf("%d-%d", c&^1, c|1))
		root[dir+"core_siblings_list"] = file(fmt.Sprintf("%d-%d", c&^3, c|3))
	}
	for n, list := range []string{"0-3", "4-7", ""} {
		dir := fmt.Sprintf("sys/devices/system/node/node%d/", n)
		root[dir+"cpulist"] = file(list)
		root[dir+"distance"] = file("10 21 30")
	}
	root["sys/class/infiniband/rxe0/device/numa_node"] = file("1")
	root["sys/class/net/eth0/device/numa_node"] = file("0")
	root["sys/class/net/eth1/device/numa_node"] = file("-1")
}

func TestPlacementInDoctor(t *testing.T) {
	t.Parallel()
	const nodes = "node 0: 2 core(s), processors 0-3, distances 10 21 30; node 1: 2 core(s), processors 4-7, distances 10 21 30; node 2: memory only; " +
		"rxe0 at node 1; eth0 at node 0; eth1 at no node; this process is "
	for _, c := range []struct {
		on    cpu.Set
		want  Status
		found string
		fix   string
	}{
		{cpu.Of(0, 1, 2, 3, 4, 5, 6, 7), OK, "not bound", ""},
		{cpu.Set{}, OK, "not bound", ""}, // the system does not report it
		{cpu.Of(1, 4), OK, "bound to processors 1,4", ""},
		{cpu.Of(0, 3), Warn, "bound to processors 0,3: away from rxe0, whose transfers cross nodes", "start it on the node of the device: numactl --cpunodebind=1, or taskset -c 4-7"},
	} {
		s, root, v := healthy()
		twoNodes(root)
		s.Allowed = c.on
		require.Equal(t, Finding{Status: c.want, Found: nodes + c.found, Fix: c.fix}, placement(s, *v))
	}

	s, root, _ := healthy()
	require.Zero(t, Collect(s).Cores, "unknown")
	s.Allowed = cpu.Of(0, 1)
	require.Equal(t, 2, Collect(s).Cores, "counted as one each")
	twoNodes(root)
	require.Equal(t, 1, Collect(s).Cores)
	s.Allowed = cpu.Set{}
	require.Equal(t, 4, Collect(s).Cores)

	s, root, v := healthy()
	delete(root, "sys/devices/system/node/node0/x")
	require.Equal(t, OK, placement(s, *v).Status)
	require.Contains(t, placement(s, *v).Found, "sys/devices/system/cpu/online: file does not exist")
	s.Allowed = cpu.Of(0, 1)
	require.Contains(t, placement(s, *v).Found, "no node: 2 core(s), processors 0-1; rxe0 at no node; this process is not bound; assumed: open ")
	s.Allowed = cpu.Set{}
	root["sys/devices/system/cpu/online"] = file("0")
	root["sys/devices/system/cpu/cpu0/topology/thread_siblings_list"] = file("0")
	require.Equal(t, "no node: 1 core(s), processors 0; rxe0 at no node; this process is not bound; "+
		"assumed: no NUMA nodes in sys/devices/system/node: all processors count as one node", placement(s, *v).Found)
	root["sys/devices/system/node/node0/cpulist"] = file("0-")
	require.Contains(t, placement(s, *v).Found, "node0/cpulist: malformed list of processors")
}
