package fabric

import "github.com/seed33544411/rma/internal/bulk"

// CopyTuner is implemented by links that copy large blocks with the processor and let
// callers set the sizes from which on each method is used. Methods may be called from any
// goroutine at any time; a request in flight keeps its method.
type CopyTuner interface {
	// Copies returns the present choice.
	Copies() CopyChoice

	// SetCopies replaces the switch points, found for two processes on the host's
	// largest cache; source says where they come from, in a word. Points that the
	// user has forced stay.
	SetCopies(plan bulk.Plan, source string)
}

// CopyChoice holds the sizes from which on a link uses each method of copying, and the
// reason.
type CopyChoice struct {
	Plan   bulk.Plan
	Kernel string // instructions of bulk.Stream: see bulk.Kernel
	Source string // "caches", "measured", "profile", "forced", or one of these and what is forced
	Cache  uint64 // bytes of the largest cache that this process uses, 0 if unknown
	Users  int    // processes that use it, as far as the link knows them: at least 1
}

// Neighbour is implemented by endpoints to processes of the same host.
type Neighbour interface {
	// Near returns the distance between the peer's processors and this process's, and the
	// method of access to its private memory. Constant once Connect has returned.
	Near() Vicinity
}

// Vicinity describes a peer on the same host.
type Vicinity struct {
	Class   string // topo.Near: "core", "l2", "l3", "socket", "far"; "" if it depends or is unknown
	Private string // how its private memory is reached: "process_vm" or "bounce"
	Reason  string // why not by process_vm, "" if it is
}
