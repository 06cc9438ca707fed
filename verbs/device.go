package verbs

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"github.com/Mellanox/rdmamap"
)

// Device describes one RDMA device of this host.
type Device struct {
	Name      string // as in rdma link, e.g. "mlx5_0" or "rxe0"
	Path      string // device directory in sysfs
	GUID      uint64 // node GUID, 0 if there is none
	NodeType  NodeType
	Transport Transport
	NetDevs   []string // network interfaces on the same hardware, sorted; empty for plain InfiniBand
}

// Devices lists the RDMA devices, in the library's order. A host without devices has an
// empty list, not an error.
func Devices() ([]Device, error) {
	const op = "list RDMA devices"
	if err := load(op); err != nil {
		return nil, err
	}
	ds, no := rawDevices()
	if no != 0 {
		// The library returns ENOSYS when the kernel has no RDMA subsystem: such a host has no
		// devices.
		if e := (&Error{Op: op, Errno: no}); e.Is(ErrNotSupported) {
			return nil, nil
		}
		return nil, fail(op, no, "is the ib_uverbs module loaded?")
	}
	for i := range ds {
		ds[i].NetDevs = netDevs(ds[i].Name)
	}
	return ds, nil
}

// DeviceForNetDev returns the name of the RDMA device that works over the network interface
// netdev.
func DeviceForNetDev(netdev string) (string, error) {
	if dev := deviceOf(netdev); dev != "" {
		return dev, nil
	}
	return "", fmt.Errorf("find RDMA device of interface %s: %w", netdev, ErrNoDevice)
}

// deviceOf returns the RDMA device of an interface, "" if it has none. rdmamap compares
// hardware addresses of the node and of InfiniBand parents. Software devices (rxe, siw)
// work over an arbitrary interface and name it in "parent" and in the GID table, so these
// are searched first.
func deviceOf(netdev string) string {
	dirs, _ := filepath.Glob("/sys/class/infiniband/*")
	for _, d := range dirs {
		if slices.Contains(gidNetDevs(filepath.Base(d)), netdev) {
			return filepath.Base(d)
		}
	}
	if _, err := os.Stat("/sys/class/net/" + netdev); err != nil {
		return ""
	}
	dev, err := rdmamap.GetRdmaDeviceForNetdevice(netdev)
	if err != nil {
		return ""
	}
	return dev
}

// netDevs lists the interfaces over which the RDMA device works.
func netDevs(dev string) []string {
	out := gidNetDevs(dev)
	if len(out) == 0 {
		ents, _ := os.ReadDir("/sys/class/net")
		for _, e := range ents {
			if d, err := rdmamap.GetRdmaDeviceForNetdevice(e.Name()); err == nil && d == dev {
				out = append(out, e.Name())
			}
		}
	}
	sort.Strings(out)
	return out
}

// gidNetDevs lists the interfaces that the device's own sysfs entries name: the parent of a
// software device, the functions of an adapter, otherwise those in the GID table, which may
// have a thousand entries of one file each.
func gidNetDevs(dev string) []string {
	base := filepath.Join("/sys/class/infiniband", dev)
	seen := map[string]bool{}
	add := func(n string) {
		if n = strings.TrimSpace(n); n != "" {
			seen[n] = true
		}
	}
	if b, err := os.ReadFile(base + "/parent"); err == nil {
		add(string(b))
	}
	ents, _ := os.ReadDir(base + "/device/net")
	for _, e := range ents {
		add(e.Name())
	}
	if len(seen) == 0 {
		files, _ := filepath.Glob(base + "/ports/*/gid_attrs/ndevs/*")
		for _, f := range files {
			if b, err := os.ReadFile(f); err == nil { // EINVAL for empty entries
				add(string(b))
			}
		}
	}
	return slices.Collect(maps.Keys(seen))
}
