package host

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/topo"
)

// placement reports the NUMA nodes with their cores, the nodes of the devices and the
// processors of this process. A process away from the node of an RDMA device is a warning.
func placement(s System, _ Verbs) Finding {
	h := topo.Read(s.Root, s.Allowed, cpu.Set{})
	if h.Online.Len() == 0 {
		return ok("%s", strings.Join(h.Assumed, "; "))
	}
	nodes, assumed := topo.ReadNodes(s.Root, h.Online)
	on := s.Allowed.And(h.Online)
	if on.Len() == 0 {
		on = h.Online
	}
	var text, far []string
	var fix string
	for _, n := range nodes {
		text = append(text, nodeText(h, n, len(nodes) > 1))
	}
	for _, d := range topo.ReadDevices(s.Root) {
		if d.Node == topo.NoNode {
			text = append(text, d.Name+" at no node")
			continue
		}
		text = append(text, fmt.Sprintf("%s at node %d", d.Name, d.Node))
		for _, n := range nodes {
			if d.RDMA && n.ID == d.Node && n.CPUs.Len() > 0 && !n.CPUs.Meets(on) {
				far = append(far, d.Name)
				fix = fmt.Sprintf("start it on the node of the device: numactl --cpunodebind=%d, or taskset -c %v", n.ID, n.CPUs)
			}
		}
	}
	if h.Online.Within(on) {
		text = append(text, "this process is not bound")
	} else {
		text = append(text, fmt.Sprintf("this process is bound to processors %v", on))
	}
	for _, a := range slices.Concat(h.Assumed, assumed) {
		text = append(text, "assumed: "+a)
	}
	found := strings.Join(text, "; ")
	if len(far) > 0 {
		return bad(Warn, fix, "%s: away from %s, whose transfers cross nodes", found, strings.Join(far, ", "))
	}
	return ok("%s", found)
}

func nodeText(h *topo.Host, n topo.Node, several bool) string {
	name := fmt.Sprintf("node %d", n.ID)
	if n.ID == topo.NoNode {
		name = "no node"
	}
	if n.CPUs.Len() == 0 {
		return name + ": memory only"
	}
	text := fmt.Sprintf("%s: %d core(s), processors %v", name, h.UsableCores(n.CPUs), n.CPUs)
	if several && n.Distances != nil {
		text += ", distances " + strings.Trim(fmt.Sprint(n.Distances), "[]")
	}
	return text
}
