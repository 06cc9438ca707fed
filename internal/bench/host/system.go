package host

import (
	"io/fs"
	"time"

	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/settings"
)

// System is the interface of this package to a machine. Tests replace it.
type System struct {
	// Root is the file system, as os.DirFS("/").
	Root fs.FS

	// Memlock returns the soft limit of locked memory in bytes, ^0 for unlimited.
	Memlock func() (uint64, error)

	// Files returns the soft limit of open files.
	Files func() (uint64, error)

	// OpenRW checks that a device file can be opened for reading and writing.
	OpenRW func(path string) error

	// Memfd creates, maps and touches a shared memory object of size bytes.
	Memfd func(size int) error

	// CMA copies memory between this process and a child of it.
	CMA func() error

	// ClockCost returns the time of one reading of the clock.
	ClockCost func() time.Duration

	// CPUs is the number of processors that this process may use.
	CPUs int

	// Allowed are these processors; empty if the system does not report them.
	Allowed cpu.Set

	// Links tries to open every link.
	Links func() []Link

	// Settings loads the settings from variables and a settings file.
	Settings func() (*settings.Values, error)

	// Verbs describes the RDMA devices and the reason why verbs cannot be used.
	Verbs func() Verbs
}

// Link is one link of the project, tried on this machine.
type Link struct {
	Name   string `json:"name"` // as --fabric takes it
	Usable bool   `json:"usable"`
	Why    string `json:"why,omitempty"` // why it is not usable
	Detail string `json:"detail,omitempty"`
}

// Verbs is the state of libibverbs and its devices.
type Verbs struct {
	Usable  bool     `json:"usable"`
	Reason  string   `json:"reason"` // library and version, or the missing part
	Devices []Device `json:"devices,omitempty"`
}

// Device is an RDMA device.
type Device struct {
	Name   string   `json:"name"`
	NetDev []string `json:"netdevs,omitempty"`
	Err    string   `json:"error,omitempty"` // why it cannot be opened or queried
	Ports  []Port   `json:"ports,omitempty"`
	Limits string   `json:"limits,omitempty"`
}

// Port is a port of a device.
type Port struct {
	Number    int    `json:"number"`
	State     string `json:"state"`
	LinkLayer string `json:"link_layer"`
	MTU       string `json:"mtu"`
	GIDs      []GID  `json:"gids,omitempty"`
	Choice    string `json:"choice,omitempty"` // the chosen entry, and why
}

// GID is an entry of a port's table.
type GID struct {
	Index  int    `json:"index"`
	GID    string `json:"gid"`
	Type   string `json:"type"`
	NetDev string `json:"netdev,omitempty"`
	Chosen bool   `json:"chosen,omitempty"`
	Why    string `json:"why,omitempty"`
}
