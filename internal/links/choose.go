package links

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/seed33544411/rma/internal/cpu"
)

// ErrBadOffer means that a peer's offer is malformed.
var ErrBadOffer = errors.New("links: malformed offer")

// MaxOffer bounds a marshalled Offer in bytes.
const MaxOffer = 512

// maxHostName bounds the name of RMA_HOST in bytes.
const maxHostName = 64

// Offer describes the links of a rank to other ranks.
type Offer struct {
	// Host is equal for ranks that may share memory: same boot of the same kernel, same
	// network namespace (shm's sockets belong to one), same user.
	Host  string
	Links []string // links that it has open
	// CPUs are the processors that the rank may use; empty if unknown.
	CPUs cpu.Set
}

// NewOffer returns the offer of this process, with the given links open.
func NewOffer(open []string) Offer {
	return Offer{Host: HostID(), Links: open, CPUs: cpu.Allowed()}
}

// On returns the offer of a process that is told to count as one of another host, such that
// those with the same name share one. The empty name is that of the host itself.
func (o Offer) On(name string) Offer {
	if name != "" {
		o.Host = name + "@" + o.Host
	}
	return o
}

// OneByDefault reports whether GOMAXPROCS of this process is 1 because it may use one processor
// only. With more, the runtime never chooses 1.
func OneByDefault() bool {
	return runtime.GOMAXPROCS(0) == 1 && runtime.NumCPU() == 1 && os.Getenv("GOMAXPROCS") == ""
}

// HostID returns Offer.Host of this process.
func HostID() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		name, _ := os.Hostname()
		boot = []byte(name)
	}
	ns, _ := os.Readlink("/proc/self/ns/net")
	id := fmt.Sprintf("%s/%s/%d", strings.TrimSpace(string(boot)), ns, os.Geteuid())
	return id[:min(len(id), MaxOffer/2)]
}

// cpusName is the prefix of a list entry that is not a link: the rank's processors follow
// it, a list with + instead of the comma. Ranks that do not know it treat it as a link that
// they do not have.
const cpusName = "cpus:"

// Append appends the marshalled offer: host, 0, names separated by commas. A list of
// processors that is too long is omitted.
func (o Offer) Append(b []byte) []byte {
	start := len(b)
	b = append(b, o.Host...)
	b = append(b, 0)
	b = append(b, strings.Join(o.Links, ",")...)
	cpus := strings.ReplaceAll(o.CPUs.String(), ",", "+")
	if cpus == "" || len(b)-start+1+len(cpusName)+len(cpus) > MaxOffer {
		return b
	}
	if len(o.Links) > 0 {
		b = append(b, ',')
	}
	return append(append(b, cpusName...), cpus...)
}

// ParseOffer parses a peer's offer. Unknown names are kept: they match nothing.
func ParseOffer(b []byte) (Offer, error) {
	host, names, ok := strings.Cut(string(b), "\x00")
	if !ok || len(b) > MaxOffer || strings.ContainsRune(names, 0) {
		return Offer{}, fmt.Errorf("%w of %d bytes", ErrBadOffer, len(b))
	}
	o := Offer{Host: host}
	for name := range strings.SplitSeq(names, ",") {
		list, isCPUs := strings.CutPrefix(name, cpusName)
		switch {
		case isCPUs:
			var err error
			if o.CPUs, err = cpu.ParseSet(strings.ReplaceAll(list, "+", ",")); err != nil {
				return Offer{}, fmt.Errorf("%w: %w", ErrBadOffer, err)
			}
		case name != "":
			o.Links = append(o.Links, name)
		}
	}
	return o, nil
}

// Choose returns the link between two ranks from their offers: of those that both have, shm
// on one host, else RDMA, else tcp. Both sides get the same result. If forced is not empty,
// only that link is considered. Errors describe a as the first and b as the second.
func Choose(a, b Offer, forced string) (string, error) {
	for _, e := range registry {
		switch {
		case forced != "" && forced != e.name && forced != e.alias:
		case e.sameHost && a.Host != b.Host:
		case slices.Contains(a.Links, e.name) && slices.Contains(b.Links, e.name):
			return e.name, nil
		}
	}
	if forced == "sim" && simulated != nil && slices.Contains(a.Links, forced) && slices.Contains(b.Links, forced) {
		return forced, nil
	}
	where, why := between(a.Host, b.Host), ""
	if forced == "" {
		forced = "any"
	} else if len(a.Links) > 0 && len(b.Links) > 0 {
		why = " (RMA_FABRIC has to be the same on all ranks)"
	}
	return "", fmt.Errorf("links: %w: %s wanted %s; the first has %v, the second %v%s", ErrNoLink, forced, where, a.Links, b.Links, why)
}

// between describes the reason why the processes of two values of HostID cannot share
// memory.
func between(a, b string) string {
	x, y := strings.Split(a, "/"), strings.Split(b, "/") // boot, namespace, user
	switch {
	case a == b:
		return "on one host"
	case len(x) != 3 || len(y) != 3 || x[0] != y[0]:
		return "on different hosts"
	case x[1] != y[1]:
		return "on one host, but in different network namespaces"
	}
	return fmt.Sprintf("on one host, but run by different users (uid %s and %s)", x[2], y[2])
}
