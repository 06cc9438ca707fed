package ibv

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/verbs"
)

// An address on the wire, little-endian:
//
//	 0  magic "RMAi"
//	 4  version, 4
//	 5  path MTU, as verbs.MTU
//	 6  reads and atomics answered at once
//	 7  link layer, as verbs.LinkLayer
//	 8  LID (2)
//	10  operations that the device lacks: 1 writes with immediate, 2 atomics
//	11  ports over which the endpoint continues on another queue pair, 0: it does not; with 128: and by a carrier
//	12  GID (16)
//	28  queue pair number (4)
//	32  first packet sequence number (4)
//	36  CRC-32C of the bytes before (4)
//
// The checksum detects accidental damage, which would otherwise make the address name
// another queue pair. It does not protect against a malicious peer: at worst, its address
// makes this side send packets to a wrong destination until PeerTimeout.
const (
	addrMagic   = "RMAi"
	addrVersion = 4
	addrSize    = 40
	addrCarries = 1 << 7
)

type address struct {
	mtu     verbs.MTU
	reads   uint8
	layer   verbs.LinkLayer
	lacks   lacks
	lid     uint16
	ports   uint8 // over which it continues on another queue pair; 0: it does not
	carries bool  // it continues by a carrier
	gid     verbs.GID
	qpn     uint32
	psn     uint32
}

// lacks is the set of operations that a device does not have, for which its endpoints send
// letters.
type lacks uint8

const (
	lacksImm lacks = 1 << iota
	lacksAtomics
)

func (x lacks) String() string {
	return []string{"nothing", "writes with immediate", "atomics", "writes with immediate, atomics"}[x&(lacksImm|lacksAtomics)]
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (a *address) append(b []byte) []byte {
	n := len(b)
	b = append(b, addrMagic...)
	b = append(b, addrVersion, byte(a.mtu), a.reads, byte(a.layer))
	b = binary.LittleEndian.AppendUint16(b, a.lid)
	ports := a.ports
	if a.carries {
		ports |= addrCarries
	}
	b = append(b, byte(a.lacks), ports)
	b = append(b, a.gid[:]...)
	b = binary.LittleEndian.AppendUint32(b, a.qpn)
	b = binary.LittleEndian.AppendUint32(b, a.psn)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[n:], castagnoli))
}

// parseAddress parses a peer's address, which is untrusted. Errors wrap ErrBadAddress.
func parseAddress(b []byte) (a address, err error) {
	bad := func(format string, args ...any) (address, error) {
		return address{}, fmt.Errorf("%w: %s", fabric.ErrBadAddress, fmt.Sprintf(format, args...))
	}
	if len(b) < 5 || string(b[:4]) != addrMagic {
		return bad("not the address of an ibv endpoint (%d bytes)", len(b))
	}
	if b[4] != addrVersion {
		return bad("version %d, want %d: both sides must run the same release", b[4], addrVersion)
	}
	if len(b) != addrSize {
		return bad("%d bytes, want %d", len(b), addrSize)
	}
	if got, want := binary.LittleEndian.Uint32(b[36:]), crc32.Checksum(b[:36], castagnoli); got != want {
		return bad("damaged (sum %#x, want %#x)", got, want)
	}
	a = address{
		lacks: lacks(b[10]), mtu: verbs.MTU(b[5]), reads: b[6], layer: verbs.LinkLayer(b[7]), lid: binary.LittleEndian.Uint16(b[8:]),
		gid: verbs.GID(b[12:28]), qpn: binary.LittleEndian.Uint32(b[28:]), psn: binary.LittleEndian.Uint32(b[32:]), ports: b[11] &^ addrCarries, carries: b[11]&addrCarries != 0,
	}
	switch {
	case a.lacks > lacksImm|lacksAtomics || a.ports > maxPorts || a.carries && a.ports == 0:
		return bad("reserved bits are not zero")
	case !a.mtu.Valid():
		return bad("path MTU %v", a.mtu)
	case a.reads == 0:
		return bad("answers no reads")
	case a.qpn < 2 || a.qpn > 0xffffff: // 0 and 1 are management
		return bad("queue pair number %#x", a.qpn)
	case a.psn > 0xffffff:
		return bad("packet sequence number %#x", a.psn)
	case a.layer != verbs.LinkInfiniBand && a.layer != verbs.LinkEthernet:
		return bad("link layer %v", a.layer)
	case a.gid.IsZero() && (a.layer == verbs.LinkEthernet || a.lid == 0):
		return bad("no GID")
	}
	return a, nil
}
