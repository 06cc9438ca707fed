package topo

import (
	"fmt"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/cpu"
)

func text(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s + "\n")} }

// described is a host of several nodes in one line each.
func described(nodes []Node) (out []string) {
	for _, n := range nodes {
		out = append(out, fmt.Sprint(n.ID, " ", n.CPUs, " ", n.Distances))
	}
	return out
}

func TestReadNodes(t *testing.T) {
	t.Parallel()
	const dir = "sys/devices/system/node/"
	twelve := map[string]*fstest.MapFile{}
	for i := range 12 {
		twelve[fmt.Sprintf("%snode%d/cpulist", dir, i)] = text(fmt.Sprint(i))
	}
	for name, c := range map[string]struct {
		files  fstest.MapFS
		online string
		want   []string
	}{
		"two nodes": {fstest.MapFS{
			dir + "node0/cpulist": text("0-3"), dir + "node0/distance": text("10 21"),
			dir + "node1/cpulist": text("4-7"), dir + "node1/distance": text("21 10"),
			dir + "online": text("0-1"), dir + "node": text(""), dir + "nodes/cpulist": text("0"),
		}, "0-7", []string{"0 0-3 [10 21]", "1 4-7 [21 10]"}},
		"numbers with a hole, a node of memory": {fstest.MapFS{
			dir + "node8/cpulist": text("1"), dir + "node8/distance": text("10 40 80"),
			dir + "node2/cpulist": text("0"), dir + "node2/distance": text("40 10 80"),
			dir + "node9/cpulist": text(""), dir + "node9/distance": text("80 80 10"),
		}, "0-1", []string{"2 0 [40 10 80]", "8 1 [10 40 80]", "9  [80 80 10]"}},
		"offline processors":            {fstest.MapFS{dir + "node0/cpulist": text("0-3")}, "1,3", []string{"0 1,3 []"}},
		"in ascending order":            {twelve, "9-10", []string{"0  []", "1  []", "2  []", "3  []", "4  []", "5  []", "6  []", "7  []", "8  []", "9 9 []", "10 10 []", "11  []"}},
		"a kernel without NUMA":         {fstest.MapFS{}, "0-1", []string{"-1 0-1 []"}},
		"a processor without a node":    {fstest.MapFS{dir + "node0/cpulist": text("0"), dir + "node0/distance": text("10")}, "0-1", []string{"-1 1 []", "0 0 []"}},
		"a processor of two nodes":      {fstest.MapFS{dir + "node0/cpulist": text("0-1"), dir + "node1/cpulist": text("1-2")}, "0-2", []string{"0 0-1 []", "1 2 []"}},
		"a node without a list":         {fstest.MapFS{dir + "node0/meminfo": text("")}, "0", []string{"-1 0 []", "0  []"}},
		"distances of other nodes":      {fstest.MapFS{dir + "node0/cpulist": text("0"), dir + "node0/distance": text("10 20")}, "0", []string{"0 0 []"}},
		"distances that are no numbers": {fstest.MapFS{dir + "node0/cpulist": text("0"), dir + "node0/distance": text("ten")}, "0", []string{"0 0 []"}},
		"a distance of zero":            {fstest.MapFS{dir + "node0/cpulist": text("0"), dir + "node0/distance": text("0")}, "0", []string{"0 0 []"}},
		"numbers that are none":         {fstest.MapFS{dir + "node00/cpulist": text("0"), dir + "node0x/cpulist": text("0"), dir + "node1024/cpulist": text("0")}, "0", []string{"-1 0 []"}},
		"a number beyond int":           {fstest.MapFS{dir + "node99999999999999999999/cpulist": text("0")}, "0", []string{"-1 0 []"}},
		"no processors":                 {fstest.MapFS{}, "", nil},
	} {
		online, err := cpu.ParseSet(c.online)
		require.NoError(t, err)
		nodes, _ := ReadNodes(c.files, online)
		require.Equal(t, c.want, described(nodes), name)
	}
}

func TestReadDevices(t *testing.T) {
	t.Parallel()
	const ib, net = "sys/class/infiniband/", "sys/class/net/"
	require.Equal(t, []Device{
		{Name: "mlx5_0", RDMA: true, Node: 1}, {Name: "rxe0", RDMA: true, Node: NoNode},
		{Name: "eth0", Node: 0}, {Name: "eth1", Node: NoNode}, {Name: "eth2", Node: NoNode}, {Name: "eth3", Node: NoNode},
	}, ReadDevices(fstest.MapFS{
		ib + "mlx5_0/device/numa_node": text("1"),
		ib + "rxe0/ports/1/state":      text("4: ACTIVE"),
		net + "eth0/device/numa_node":  text("0"),
		net + "eth1/device/numa_node":  text("-1"),
		net + "eth2/device/numa_node":  text("one"),
		net + "eth3/device/numa_node":  text("1024"),
		net + "lo/mtu":                 text("65536"),
		net + "bonding_masters":        text("bond0"),
	}))
	require.Empty(t, ReadDevices(fstest.MapFS{}))
}

func TestLocalNodes(t *testing.T) {
	t.Parallel()
	var all cpu.Set
	local, _ := LocalNodes()
	for _, n := range local {
		require.False(t, n.CPUs.Meets(all))
		all = all.Or(n.CPUs)
	}
	require.Equal(t, Local().Online.String(), all.String())
}

// Whatever files hold: no panic, and every processor in one node.
func FuzzReadNodes(f *testing.F) {
	f.Add("0-3", "10 21", "4-7", "21 10")
	f.Add("", "10", "0", "")
	f.Add("0-7", "10 10", "0-7", "10 0")
	f.Add("7-0", "-1", "x", "\x00")
	f.Add("0-16383", "65536 1", ",", "1\n2")
	f.Fuzz(func(t *testing.T, list0, distance0, list1, distance1 string) {
		const dir = "sys/devices/system/node/"
		online := cpu.Of(0, 1, 2, 3, 4, 5, 6, 7)
		nodes, _ := ReadNodes(fstest.MapFS{
			dir + "node0/cpulist": {Data: []byte(list0)}, dir + "node0/distance": {Data: []byte(distance0)},
			dir + "node1/cpulist": {Data: []byte(list1)}, dir + "node1/distance": {Data: []byte(distance1)},
		}, online)
		var all cpu.Set
		for _, n := range nodes {
			require.False(t, n.CPUs.Meets(all))
			all = all.Or(n.CPUs)
			require.Contains(t, []int{0, len(nodes)}, len(n.Distances))
		}
		require.Equal(t, online.String(), all.String())
		h := &Host{Online: online, Known: online}
		for ranks := range 10 {
			require.Len(t, h.Place(nodes, online, ranks, Scatter), ranks)
		}
	})
}
