package rmanet

import (
	"fmt"
	"net"
	"strconv"
	"strings"
)

// Network is the name of this network in addresses and errors.
const Network = "rma"

// MaxService is the longest name of a service, in bytes.
const MaxService = 200

// Addr is one end of a connection: a service of a rank. The end that dialled has a
// service that begins with a tilde, which nobody can listen on.
type Addr struct {
	Rank    int
	Service string
}

// Network returns "rma".
func (a Addr) Network() string { return Network }

// String returns rma://rank/service.
func (a Addr) String() string { return Network + "://" + strconv.Itoa(a.Rank) + "/" + a.Service }

// ParseAddr reads rma://rank/service, or rank:service, which is what programs that
// take host and port have. The error is a *net.AddrError.
func ParseAddr(s string) (Addr, error) {
	fail := func(why string) (Addr, error) { return Addr{}, &net.AddrError{Err: why, Addr: s} }
	rest, isURL := strings.CutPrefix(s, Network+"://")
	sep := ":"
	if isURL {
		sep = "/"
	}
	rank, service, ok := strings.Cut(rest, sep)
	if !ok {
		return fail("want rank:service or rma://rank/service")
	}
	r, err := strconv.ParseUint(rank, 10, 31)
	if err != nil {
		return fail("the rank is not a number")
	}
	if err := checkService(service); err != nil {
		return fail(err.Error())
	}
	return Addr{int(r), service}, nil
}

// checkService reports what is wrong with the name of a service.
func checkService(s string) error {
	switch {
	case s == "":
		return fmt.Errorf("no service")
	case len(s) > MaxService:
		return fmt.Errorf("service of %d bytes, at most %d", len(s), MaxService)
	case s[0] == '~':
		return fmt.Errorf("service begins with a tilde")
	}
	return nil
}
