package launch

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"text/tabwriter"

	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/topo"
)

// Place returns the places of n ranks on the processors that this process may use, by the
// policy; nil for topo.None. What a launcher above or a control group left to this process
// is never widened. assumed says in words for users what the host does not report about its
// processors, and what the places rest on instead.
func Place(p topo.Policy, n int) (places []topo.Binding, assumed []string) {
	if p == topo.None {
		return nil, nil
	}
	h := topo.Local()
	nodes, more := topo.LocalNodes()
	return h.Place(nodes, usable(), n, p), slices.Concat(h.Assumed, more)
}

// usable returns the processors that this process may use.
func usable() cpu.Set {
	if s := cpu.Allowed(); s.Len() > 0 {
		return s
	}
	return topo.Local().Online
}

// WriteBindings writes the result of Place for people; places of nil mean that the ranks are
// not bound.
func WriteBindings(w io.Writer, places []topo.Binding, assumed []string) error {
	if places == nil {
		_, err := fmt.Fprintf(w, "ranks are not bound: each may run on processors %v\n", usable())
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "rank\tnode\tprocessors\tprogress")
	for rank, b := range places {
		node := "-"
		if b.Node != topo.NoNode {
			node = strconv.Itoa(b.Node)
		}
		fmt.Fprintf(t, "%d\t%s\t%v\t%v\n", rank, node, b.CPUs, b.Progress)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, a := range assumed {
		if _, err := fmt.Fprintln(w, "assumed:", a); err != nil {
			return err
		}
	}
	return nil
}

// bound starts a process from the calling thread, which is locked, on the processors of b:
// a process inherits the affinity of the thread that forks it, so that no instruction of it
// runs elsewhere.
func bound(b *topo.Binding, start func() error) error {
	if b == nil {
		return start()
	}
	if err := topo.BindThread(b.CPUs); err != nil {
		return err
	}
	return start()
}

// unbind gives the calling thread, which has started ranks at those places, the processors
// of this process again. It reports success.
func unbind(places []topo.Binding) bool {
	return places == nil || topo.BindThread(cpu.Allowed()) == nil
}

// EnvProgressCPU is the processor of the progress goroutine's thread.
const EnvProgressCPU = "RMA_PROGRESS_CPU"

const envProcs = "GOMAXPROCS"

// bindEnviron returns the variables of a bound rank: the Ps of its Go scheduler, unless the
// user has set their number, and the processor of its engine, if that leaves the rank's
// core. The progress goroutine needs a P that the application does not compute on: with one
// P, waits and what peers ask for take turns (stencil over shm, two ranks: more than twice as long).
func bindEnviron(b *topo.Binding, progress bool) []string {
	var env []string
	procs := b.CPUs.Len()
	switch {
	case progress && !b.Progress.Meets(b.CPUs):
		env = append(env, EnvProgressCPU+"="+strconv.Itoa(b.Progress.CPUs()[0]))
		procs++
	case progress:
		env = append(env, EnvProgressCPU+"=")
	}
	return appendProcs(env, max(procs, 2))
}

// appendProcs appends the number of Ps of a rank's Go scheduler, unless the user has set it.
func appendProcs(env []string, procs int) []string {
	if os.Getenv(envProcs) != "" {
		return env
	}
	return append(env, envProcs+"="+strconv.Itoa(procs))
}
