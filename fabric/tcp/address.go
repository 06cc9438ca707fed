package tcp

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/seed33544411/rma/fabric"
)

const (
	wireVersion = 4
	tokenSize   = 16
	maxAddrs    = 8 // hosts in one endpoint's address
)

// token is the secret of an endpoint. Only its address contains it.
type token [tokenSize]byte

// address is the content of Endpoint.Address. Layout, little-endian:
//
//	0 'T'  1 version  2 token (16)  18 nonce (8)  26 port (2)  28 count (1)
//	then count times: length (4 or 16), that many bytes of an IP address,
//	in the order in which the peer should try them.
type address struct {
	token token
	nonce uint64
	port  uint16
	hosts []netip.Addr
}

func (a *address) append(b []byte) []byte {
	b = append(b, 'T', wireVersion)
	b = append(b, a.token[:]...)
	b = binary.LittleEndian.AppendUint64(b, a.nonce)
	b = binary.LittleEndian.AppendUint16(b, a.port)
	b = append(b, byte(len(a.hosts)))
	for _, h := range a.hosts {
		s := h.AsSlice()
		b = append(b, byte(len(s)))
		b = append(b, s...)
	}
	return b
}

func (a *address) parse(b []byte) error {
	bad := func(what string) error {
		return fmt.Errorf("tcp: %w: %s", fabric.ErrBadAddress, what)
	}
	if len(b) < 29 || len(b) > fabric.MaxAddress || b[0] != 'T' {
		return bad("not a tcp endpoint's address")
	}
	if b[1] != wireVersion {
		return bad(fmt.Sprintf("version %d, want %d: both sides must run the same release", b[1], wireVersion))
	}
	copy(a.token[:], b[2:])
	a.nonce = binary.LittleEndian.Uint64(b[18:])
	a.port = binary.LittleEndian.Uint16(b[26:])
	count := int(b[28])
	b = b[29:]
	if a.port == 0 || count == 0 || count > maxAddrs {
		return bad("no host to connect to, or too many")
	}
	a.hosts = make([]netip.Addr, 0, count)
	for range count {
		if len(b) < 1 || b[0] != 4 && b[0] != 16 || len(b) < 1+int(b[0]) {
			return bad("host address cut short")
		}
		h, _ := netip.AddrFromSlice(b[1 : 1+b[0]])
		if h.IsUnspecified() || h.IsMulticast() {
			return bad("host " + h.String() + " cannot be connected to")
		}
		a.hosts = append(a.hosts, h)
		b = b[1+b[0]:]
	}
	if len(b) != 0 {
		return bad("trailing bytes")
	}
	return nil
}
