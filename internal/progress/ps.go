package progress

import (
	"runtime"
	"sync"
	"time"
)

// ps counts the Ps that engines of this process have added.
var ps struct {
	mu    sync.Mutex
	added int
	set   int // GOMAXPROCS that they have set

	spared int  // calls of SpareP that have not ended
	spare  bool // one of those that were added is for them
	idle   *time.Timer
}

// addPs adds d to GOMAXPROCS, unless the application has changed it after the last call with
// d > 0, which is its decision.
func addPs(d int) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	addPsLocked(d)
}

func addPsLocked(d int) {
	n := runtime.GOMAXPROCS(0)
	if n != ps.set {
		ps.added = 0
	}
	if d > 0 || ps.added > 0 {
		runtime.GOMAXPROCS(n + d)
		ps.added, ps.set = ps.added+d, n+d
	}
}

// psAreOurs reports whether GOMAXPROCS is what engines have set it to.
func psAreOurs() bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return runtime.GOMAXPROCS(0) == ps.set
}

// spareTime is how long the second P stays when nobody needs it: GOMAXPROCS stops the process, and
// connections that are made one after the other each need it.
const spareTime = 5 * time.Millisecond

// SpareP gives a process that has one P a second one until end is called, for goroutines that wait for
// the network. Goroutines that wait for a peer, and yield the processor meanwhile, keep the only P,
// and the runtime then looks at the network every 10 ms.
func SpareP() (end func()) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.spared++; ps.spared == 1 && !ps.spare && runtime.GOMAXPROCS(0) == 1 {
		addPsLocked(1)
		ps.spare = true
	}
	return endSpareP
}

func endSpareP() {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.spared--; ps.spared > 0 || !ps.spare {
		return
	}
	if ps.idle == nil {
		ps.idle = time.AfterFunc(spareTime, takeSpareP)
	} else {
		ps.idle.Reset(spareTime)
	}
}

// takeSpareP takes the second P away, unless somebody needs it again.
func takeSpareP() {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.spared == 0 && ps.spare {
		addPsLocked(-1)
		ps.spare = false
	}
}
