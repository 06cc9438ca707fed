package jobenv

import (
	"fmt"
	"net"
	"strings"

	"github.com/seed33544411/rma/internal/wireup"
)

// kubePort is the port of rank 0 if RMA_SERVICE names none. Every pod has its own address,
// so no other program uses the port.
const kubePort = "7117"

// kubernetes reads the environment of a pod of an indexed Job. The pods of job j are called
// j-0, j-1, …, by their host names as well; under a headless service s (the pods'
// subdomain) pod 0 is j-0.s. Kubernetes does not report their number to a pod, so RMA_SIZE must
// be set.
func kubernetes(e env) (*place, error) {
	c, err := e.numbers("JOB_COMPLETION_INDEX", wireup.EnvSize, wireup.EnvLocalRank)
	if err != nil {
		return nil, err
	}
	p := &place{
		noRoot: EnvService + " does not name the headless service of the pods",
	}
	p.Config = c
	p.TokenHint = "a Secret as RMA_TOKEN, or mounted and named by RMA_TOKEN_FILE"
	job, isPod := strings.CutSuffix(e("HOSTNAME"), "-"+e("JOB_COMPLETION_INDEX"))
	p.id = "kubernetes " + job
	service := e(EnvService)
	if service == "" {
		return p, nil
	}
	if !isPod || job == "" {
		p.noRoot = fmt.Sprintf("HOSTNAME=%q is not that of a pod of an indexed Job", e("HOSTNAME"))
		return p, nil
	}
	host, port, err := net.SplitHostPort(service)
	if err != nil {
		host, port = service, kubePort
	}
	p.root = net.JoinHostPort(job+"-0."+host, port)
	return p, nil
}
