package tcp

import (
	"errors"
	"fmt"
	"github.com/seed33544411/rma/internal/enum"
	"net/netip"
	"strings"
	"time"

	"github.com/seed33544411/rma/fabric"
)

// Class is the kind of path to a peer. The settings of a connection depend on it.
type Class uint8

// Classes of peers.
const (
	ClassHost Class = iota // this host: no congestion on the path
	ClassNear              // another host, up to Config.LongRTT away
	ClassLong              // farther
	numClasses
)

var classNames = [numClasses]string{"host", "near", "long"}

func (c Class) String() string { return enum.Name("class", classNames[:], c) }

// DefaultLongRTT is the round trip from which a path is long: ten times that of a large
// data centre, and a tenth of that between two cities.
const DefaultLongRTT = time.Millisecond

// classify returns the class of a path, from its ends and its round trip. rtt is 0 if the
// system does not report it.
func classify(local, remote netip.Addr, rtt, long time.Duration) Class {
	switch {
	case remote.Unmap().IsLoopback() || remote.Unmap() == local.Unmap() && remote.IsValid():
		return ClassHost
	case rtt > long:
		return ClassLong
	}
	return ClassNear
}

// Congestion names the kernel's congestion control for each class. Empty: see the method
// resolve.
type Congestion [numClasses]string

// KernelCongestion keeps the system's default.
const KernelCongestion = "kernel"

var errCongestionList = errors.New("want a name, or class=name,... with the classes host, near and long")

// ParseCongestion parses `cubic` (for all classes) or `host=reno,long=bbr`; empty and
// `auto` leave the choice to the link.
func ParseCongestion(s string) (c Congestion, err error) {
	if s == "" {
		return c, nil
	}
	for part := range strings.SplitSeq(s, ",") {
		class, name, each := strings.Cut(strings.TrimSpace(part), "=")
		if !each {
			class, name = "", class
		}
		if !nameOfCongestion(name) {
			return c, fmt.Errorf("congestion control %q: %w", s, errCongestionList)
		}
		if name == "auto" {
			name = ""
		}
		known := false
		for i := range c {
			if !each || classNames[i] == class {
				c[i], known = name, true
			}
		}
		if !known {
			return c, fmt.Errorf("congestion control %q: no class %q: %w", s, class, errCongestionList)
		}
	}
	return c, nil
}

// nameOfCongestion reports whether s can be a name: these are shorter than 16 bytes
// (TCP_CA_NAME_MAX).
func nameOfCongestion(s string) bool {
	for _, r := range s {
		if (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '_' && r != '-' {
			return false
		}
	}
	return s != "" && len(s) < 16
}

// CongestionError reports a congestion control that is not available.
type CongestionError struct {
	Name    string
	Offered []string // offered by the kernel to this process; nil if unknown
	Err     error
}

func (e *CongestionError) Error() string {
	offer := "the system does not say which it has"
	if len(e.Offered) > 0 {
		offer = "offered: " + strings.Join(e.Offered, ", ")
	}
	return fmt.Sprintf("congestion control %q: %v (%s)", e.Name, e.Err, offer)
}

// Unwrap returns fabric.ErrNotSupported and the system's error.
func (e *CongestionError) Unwrap() []error { return []error{fabric.ErrNotSupported, e.Err} }
