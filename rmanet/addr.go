package rmanet

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
)

// Network is the name of this network in addresses and errors.
const Network = "rma"

// MaxService is the longest name of a service, in bytes.
const MaxService = 200

// firstOwn is the first number for the dialling ends of connections: above all ports, so
// that no service has such a name.
const firstOwn = 1 << 16

// Addr is one end of a connection: a service of a rank. The dialling end has a number above
// 65535, on which no listener is possible.
type Addr struct {
	Rank    int
	Service string
}

// Network returns "rma".
func (a Addr) Network() string { return Network }

// String returns host and port in the form of net.SplitHostPort and of URLs:
// rank1.rma:8080. Each rank has its own host name.
func (a Addr) String() string { return "rank" + strconv.Itoa(a.Rank) + ".rma:" + a.Service }

// ParseAddr parses the output of String, and the short form 1:8080. The error is a
// *net.AddrError.
func ParseAddr(s string) (Addr, error) {
	fail := func(why string) (Addr, error) { return Addr{}, &net.AddrError{Err: why, Addr: s} }
	host, service, ok := strings.Cut(s, ":")
	if !ok {
		return fail("want rank:service, 1:8080 or rank1.rma:8080")
	}
	if long, is := strings.CutSuffix(host, ".rma"); is {
		if host, is = strings.CutPrefix(long, "rank"); !is {
			return fail("the host is not rankN.rma")
		}
	}
	r, err := strconv.ParseUint(host, 10, 31)
	if err != nil {
		return fail("the rank is not a number")
	}
	if err := checkService(service); err != nil {
		return fail(err.Error())
	}
	return Addr{int(r), service}, nil
}

// checkService returns an error for a service name that addresses and URLs cannot contain.
func checkService(s string) error {
	switch {
	case s == "":
		return errors.New("empty service name")
	case len(s) > MaxService:
		return fmt.Errorf("service of %d bytes, at most %d", len(s), MaxService)
	}
	for _, b := range []byte(s) {
		switch {
		case '0' <= b && b <= '9', 'a' <= b && b <= 'z', 'A' <= b && b <= 'Z', b == '-', b == '.', b == '_':
		default:
			return fmt.Errorf("service with %q: want letters, digits, -, . and _", b)
		}
	}
	if n, err := strconv.ParseUint(s, 10, 64); err == nil && n >= firstOwn || errors.Is(err, strconv.ErrRange) {
		return fmt.Errorf("service %s: numbers above %d are reserved for dialling ends", s, firstOwn-1)
	}
	return nil
}

// own returns the service name of the dialling end of the stream with that number.
func own(num uint32) string { return strconv.FormatUint(firstOwn+uint64(num), 10) }
