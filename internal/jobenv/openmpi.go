package jobenv

import (
	"crypto/sha256"
	"net/netip"
	"slices"
	"strings"
)

// openMPI reads the variables that Open MPI's mpirun (ORTE in releases up to 4, PRRTE in 5)
// sets for its processes.
func openMPI(e env) (*place, error) {
	c, err := e.numbers("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK")
	if err != nil {
		return nil, err
	}
	p := &place{
		id:      "openmpi " + e("PMIX_NAMESPACE") + " " + e("OMPI_MCA_orte_precondition_transports"),
		oneHost: e.is("OMPI_COMM_WORLD_LOCAL_SIZE", c.Size),
		noRoot:  "the ranks run on several hosts",
	}
	p.Config = c
	p.TokenHint = "export RMA_TOKEN=$(openssl rand -hex 32), then mpirun -x RMA_TOKEN …"
	if p.oneHost {
		p.LocalSize = c.Size
	}
	// mpirun generates 128 random bits for each job, by which transports recognise each
	// other. They serve as the job's token.
	if key := e("OMPI_MCA_orte_precondition_transports"); len(key) >= 32 {
		s := sha256.Sum256([]byte("rma token " + key))
		p.secret = s[:]
	}
	// All ranks know mpirun's own host. Only rank 0 can find out whether it runs there; if not,
	// it ends the job.
	hosts := hnpHosts(e("OMPI_MCA_orte_hnp_uri"))
	switch {
	case len(hosts) == 0:
	case c.Rank == 0 && !slices.ContainsFunc(hosts, isLocal):
		p.noRoot = "rank 0 does not run on the host of mpirun"
	default:
		var roots []string
		for _, h := range hosts {
			roots = append(roots, netip.AddrPortFrom(h, portNumber(p.id)).String())
		}
		p.root = strings.Join(roots, ",")
	}
	return p, nil
}

// hnpHosts returns the IPv4 addresses, or if there are none the IPv6 ones, of
// "751501312.0;tcp://192.0.2.2,10.0.0.2:50383;tcp6://[fd00::2]:48435".
func hnpHosts(uri string) (hosts []netip.Addr) {
	for part := range strings.SplitSeq(uri, ";") {
		var list string
		switch {
		case strings.HasPrefix(part, "tcp://"):
			list = part[len("tcp://"):]
		case strings.HasPrefix(part, "tcp6://") && len(hosts) == 0:
			list = part[len("tcp6://"):]
		default:
			continue
		}
		colon := strings.LastIndexByte(list, ':')
		if colon < 0 {
			continue
		}
		for a := range strings.SplitSeq(strings.Trim(list[:colon], "[]"), ",") {
			if ip, err := netip.ParseAddr(strings.Trim(a, "[]")); err == nil && !ip.IsLoopback() && len(hosts) < maxHosts {
				hosts = append(hosts, ip)
			}
		}
	}
	return hosts
}

// maxHosts bounds the number of addresses of one host that are tried.
const maxHosts = 8
