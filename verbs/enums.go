package verbs

import (
	"fmt"
	"strings"
)

// name returns names[v], or kind(v) for numbers unknown to this version.
func name(kind string, names []string, v int) string {
	if v >= 0 && v < len(names) && names[v] != "" {
		return names[v]
	}
	return fmt.Sprintf("%s(%d)", kind, v)
}

// bitNames joins the names of the bits set in v; unknown bits appear as a number.
func bitNames(names []string, v uint32) string {
	if v == 0 {
		return "none"
	}
	var out []string
	for i, n := range names {
		if n != "" && v&(1<<i) != 0 {
			out = append(out, n)
			v &^= 1 << i
		}
	}
	if v != 0 {
		out = append(out, fmt.Sprintf("%#x", v))
	}
	return strings.Join(out, "|")
}

// Access is a set of rights of a memory region, a memory window or a queue pair.
type Access uint32

// Rights. Local reading is always allowed.
const (
	AccessLocalWrite      Access = 1 << 0
	AccessRemoteWrite     Access = 1 << 1 // needs AccessLocalWrite
	AccessRemoteRead      Access = 1 << 2
	AccessRemoteAtomic    Access = 1 << 3 // needs AccessLocalWrite
	AccessMWBind          Access = 1 << 4 // memory windows may be bound to the region
	AccessZeroBased       Access = 1 << 5 // addresses count from 0
	AccessOnDemand        Access = 1 << 6 // the device pages it in at the first access
	AccessHugeTLB         Access = 1 << 7
	AccessRelaxedOrdering Access = 1 << 20 // the device may reorder its writes; ignored by libraries that do not know it
)

var accessNames = []string{"local-write", "remote-write", "remote-read", "remote-atomic", "mw-bind",
	"zero-based", "on-demand", "huge-tlb", 20: "relaxed-ordering"}

// String lists the rights.
func (a Access) String() string { return bitNames(accessNames, uint32(a)) }

// QPType is the kind of transport of a queue pair.
type QPType int32

// Queue pair types.
const (
	RC QPType = 2 // reliable connection
	UC QPType = 3 // unreliable connection
	UD QPType = 4 // unreliable datagram
)

// String names the type.
func (t QPType) String() string { return name("qp-type", []string{2: "RC", 3: "UC", 4: "UD"}, int(t)) }

// QPState is the state of a queue pair.
type QPState int32

// Queue pair states.
const (
	StateReset QPState = iota
	StateInit
	StateRTR // ready to receive
	StateRTS // ready to send
	StateSQD // send queue drained
	StateSQE // send queue error
	StateErr
)

// String names the state.
func (s QPState) String() string {
	return name("qp-state", []string{"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"}, int(s))
}

// MTU is a path MTU in the library's encoding.
type MTU int32

// Path MTUs.
const (
	MTU256 MTU = 1 + iota
	MTU512
	MTU1024
	MTU2048
	MTU4096
)

// Valid reports whether m is one of the five MTUs.
func (m MTU) Valid() bool { return m >= MTU256 && m <= MTU4096 }

// Bytes returns the MTU in bytes, 0 if m is not valid.
func (m MTU) Bytes() int {
	if !m.Valid() {
		return 0
	}
	return 128 << m
}

// String returns the size in bytes.
func (m MTU) String() string {
	if !m.Valid() {
		return fmt.Sprintf("mtu(%d)", int32(m))
	}
	return fmt.Sprint(m.Bytes())
}

// MTUOf returns the MTU of exactly n bytes, 0 if there is none.
func MTUOf(n int) MTU {
	for m := MTU256; m <= MTU4096; m++ {
		if m.Bytes() == n {
			return m
		}
	}
	return 0
}

// PortState is the logical state of a port.
type PortState int32

// Port states.
const (
	PortNOP PortState = iota
	PortDown
	PortInit
	PortArmed
	PortActive
	PortActiveDefer
)

// String names the state.
func (s PortState) String() string {
	return name("port-state", []string{"nop", "down", "init", "armed", "active", "active-defer"}, int(s))
}

// LinkLayer is the kind of network that a port is connected to.
type LinkLayer uint8

// Link layers.
const (
	LinkUnspecified LinkLayer = iota
	LinkInfiniBand
	LinkEthernet
)

// String names the link layer.
func (l LinkLayer) String() string {
	return name("link-layer", []string{"unspecified", "infiniband", "ethernet"}, int(l))
}

// NodeType is the kind of a device.
type NodeType int32

// String names the node type.
func (t NodeType) String() string {
	return name("node-type", []string{1: "channel adapter", 2: "switch", 3: "router", 4: "RNIC", 5: "usNIC", 6: "usNIC UDP", 7: "unspecified"}, int(t))
}

// Transport is the wire protocol family of a device.
type Transport int32

// Transports. RoCE devices report TransportIB.
const (
	TransportUnknown Transport = -1
	TransportIB      Transport = 0
	TransportIWARP   Transport = 1
)

// String names the transport.
func (t Transport) String() string {
	if t == TransportUnknown {
		return "unknown"
	}
	return name("transport", []string{"ib", "iwarp", "usnic", "usnic-udp", "unspecified"}, int(t))
}

// AtomicCap is the scope in which a device's remote atomics are atomic.
type AtomicCap int32

// Atomic capabilities.
const (
	AtomicNone   AtomicCap = iota // no atomics
	AtomicHCA                     // among queue pairs of this device
	AtomicGlobal                  // also with the processors and other devices of the host
)

// String names the capability.
func (a AtomicCap) String() string {
	return name("atomic-cap", []string{"none", "device", "global"}, int(a))
}

// EventType is the kind of an asynchronous event.
type EventType int32

// Asynchronous events.
const (
	EventCQErr EventType = iota
	EventQPFatal
	EventQPReqErr
	EventQPAccessErr
	EventCommEst
	EventSQDrained
	EventPathMig
	EventPathMigErr
	EventDeviceFatal
	EventPortActive
	EventPortErr
	EventLIDChange
	EventPKeyChange
	EventSMChange
	EventSRQErr
	EventSRQLimitReached
	EventQPLastWQEReached
	EventClientReregister
	EventGIDChange
	EventWQFatal
)

var eventNames = []string{"completion queue error", "queue pair fatal", "queue pair request error",
	"queue pair access error", "communication established", "send queue drained", "path migrated",
	"path migration failed", "device fatal", "port active", "port error", "LID change", "P_Key change",
	"subnet manager change", "shared receive queue error", "shared receive queue limit reached",
	"last work queue entry reached", "client reregister", "GID table change", "work queue fatal"}

// String describes the event.
func (t EventType) String() string { return name("event", eventNames, int(t)) }
