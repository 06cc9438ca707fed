package collective

import (
	"fmt"

	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/launch"
	"github.com/seed33544411/rma/internal/topo"
)

// BindAuto is the name of the choice between topo.Scatter, if each rank can have a core of its own,
// and topo.None.
const BindAuto = "auto"

// Binds are the names that ParseBind knows.
var Binds = []string{BindAuto, topo.None.String(), topo.Scatter.String(), topo.Compact.String()}

// ParseBind returns the policy of that name for a number of ranks on the cores that this process may use.
func ParseBind(name string, ranks int) (topo.Policy, error) {
	if name != BindAuto {
		p, err := topo.ParsePolicy(name)
		if err != nil {
			err = fmt.Errorf("%w: binding %q: want one of %v", ErrRequest, name, Binds)
		}
		return p, err
	}
	if ranks <= topo.Local().UsableCores(cpu.Allowed()) {
		return topo.Scatter, nil
	}
	return topo.None, nil
}

// Bound returns the cores of each rank, as rmarun --bind places them; nil if they are not bound.
func (r *Request) Bound() []topo.Binding {
	places, _ := launch.Place(r.Bind, r.Ranks)
	return places
}
