package topo

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/seed33544411/rma/internal/cpu"
)

// Node is a NUMA node: processors and the memory that is near to all of them.
type Node struct {
	ID   int
	CPUs cpu.Set // those online; empty for a node of memory alone

	// Distances to all nodes, in the order of ReadNodes, as the firmware reports them: 10 to
	// itself, 20 for twice the latency. Nil if the host does not report as many as it has
	// nodes.
	Distances []int
}

// NoNode is the node of processors and devices for which the host reports none.
const NoNode = -1

// maxNodes bounds the numbers of nodes: those of Linux are below 1024.
const maxNodes = 1024

const nodeDir = "sys/devices/system/node"

// ReadNodes reads the NUMA nodes of a host (os.DirFS("/")), in ascending order. Processors
// of online that no node has, all of them on a kernel without NUMA, are in a node NoNode of
// their own, the first; one that several nodes claim is in the first of these. assumed is as
// Host.Assumed.
func ReadNodes(root fs.FS, online cpu.Set) (nodes []Node, assumed []string) {
	assume := func(format string, args ...any) { assumed = append(assumed, fmt.Sprintf(format, args...)) }
	left := online
	for _, id := range nodeIDs(root) {
		dir := path.Join(nodeDir, "node"+strconv.Itoa(id))
		cpus, err := readList(root, dir+"/cpulist")
		if err != nil {
			assume("%v: node %d counts as one without processors", err, id)
		}
		if twice := cpus.And(online).Without(left); twice.Len() > 0 {
			assume("processors %v count to the first of their nodes, and not to node %d", twice, id)
		}
		nodes = append(nodes, Node{ID: id, CPUs: cpus.And(left), Distances: readDistances(root, dir+"/distance")})
		left = left.Without(cpus)
	}
	for i := range nodes {
		if len(nodes[i].Distances) != len(nodes) {
			nodes[i].Distances = nil
		}
	}
	switch {
	case left.Len() == 0:
	case len(nodes) == 0:
		assume("no NUMA nodes in %s: all processors count as one node", nodeDir)
	default:
		assume("processors %v are in no NUMA node: they count as a node", left)
	}
	if left.Len() > 0 {
		nodes = slices.Insert(nodes, 0, Node{ID: NoNode, CPUs: left})
		for i := range nodes {
			nodes[i].Distances = nil // none leads to the node that was added
		}
	}
	return nodes, assumed
}

// nodeIDs returns the numbers of the nodes in ascending order. Directories with other names
// are skipped.
func nodeIDs(root fs.FS) []int {
	dirs, _ := fs.Glob(root, nodeDir+"/node[0-9]*") // the pattern is well-formed
	var ids []int
	for _, d := range dirs {
		id, err := strconv.Atoi(strings.TrimPrefix(path.Base(d), "node"))
		if err == nil && id < maxNodes && path.Base(d) == fmt.Sprintf("node%d", id) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// readDistances reads a line of positive numbers; nil if there is none.
func readDistances(root fs.FS, name string) []int {
	text, _ := fs.ReadFile(root, name) // "" if the file is missing
	var ds []int
	for _, f := range strings.Fields(string(text)) {
		d, err := strconv.ParseUint(f, 10, 16)
		if err != nil || d == 0 {
			return nil
		}
		ds = append(ds, int(d))
	}
	return ds
}

// Device is an RDMA device or a network interface of hardware.
type Device struct {
	Name string
	RDMA bool
	Node int // NoNode if the host reports none, as for software devices
}

// ReadDevices reads the RDMA devices of a host and its network interfaces that have a
// device, and the NUMA nodes they are attached to.
func ReadDevices(root fs.FS) []Device {
	var devs []Device
	for _, class := range []string{"infiniband", "net"} {
		names, _ := fs.ReadDir(root, "sys/class/"+class) // none if the directory is missing
		for _, n := range names {
			dir := path.Join("sys/class", class, n.Name())
			if _, err := fs.Stat(root, dir+"/device"); err != nil && class == "net" {
				continue // lo, bridges, tunnels
			}
			devs = append(devs, Device{Name: n.Name(), RDMA: class == "infiniband", Node: readNode(root, dir+"/device/numa_node")})
		}
	}
	return devs
}

func readNode(root fs.FS, name string) int {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return NoNode
	}
	id, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || id < 0 || id >= maxNodes {
		return NoNode
	}
	return id
}
