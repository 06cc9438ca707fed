package host

import (
	"fmt"
	"io/fs"

	"github.com/seed33544411/rma/internal/bulk"
	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/topo"
)

// Copies is the plan, derived from the caches, for copies of large blocks between two ranks
// of this host, before any measurement. Sizes are bytes.
type Copies struct {
	Placement string `json:"placement"`        // proximity of two unbound ranks; "" if it varies
	String    uint64 `json:"string,omitempty"` // least size copied by the string instruction; 0: never
	Stream    uint64 `json:"stream,omitempty"` // least size copied with non-temporal stores; 0: never
	Kernel    string `json:"kernel"`
}

func copies(root fs.FS) Copies {
	on := cpu.Allowed()
	h := topo.Read(root, on, cpu.Set{})
	if len(h.Caches) == 0 {
		h = topo.Local()
	}
	if !on.Meets(h.Online) {
		on = h.Online
	}
	p := bulk.Default(h, on, 2)
	c := Copies{Placement: h.Between(on, on).String(), Kernel: bulk.Kernel()}
	if p.String != bulk.Never {
		c.String = p.String
	}
	if p.Stream != bulk.Never {
		c.Stream = p.Stream
	}
	return c
}

// text formats c for people.
func (c Copies) text() string {
	from := func(n uint64) string {
		if n == 0 {
			return "never"
		}
		return "from " + bytesText(n)
	}
	where := ""
	if c.Placement != "" {
		where = "; two ranks here are of class host-" + c.Placement
	}
	return fmt.Sprintf("string instruction %s, non-temporal stores (%s) %s, before sampling%s", from(c.String), c.Kernel, from(c.Stream), where)
}
