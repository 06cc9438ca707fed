package progress

// Looker polls for what a goroutine waits for, and for nothing else: it loads the word
// that a peer will change.
type Looker interface {
	// Look takes what is there, as Protocol.Step would. Called by the owner.
	Look() bool
}

const (
	// looks is how many looks there are for each round of the links and the rest: what
	// comes between two of them is seen a few ns later, what comes in a round waits for
	// half of it, some 30 ns. More would keep what others wait for from being seen.
	looks = 32

	// eagerRounds is how many rounds have so many looks: 2 to 5 us, a few round trips.
	// Afterwards pauses and yields make a look more no gain.
	eagerRounds = 16
)

// look looks for what w waits for, before round n of a wait. It reports whether w is
// done. Waits that all end in looks have a round now and then all the same. Owner's.
// Hot path.
func (e *Engine) look(w *Waiter, l Looker, n int) bool {
	e.AssertOwned()
	if n > eagerRounds {
		return l.Look() && w.Done()
	}
	for range looks {
		if l.Look() && w.Done() {
			e.lucky++
			return n > 1 || e.lucky%looks != 0
		}
		if e.want.Load() > 0 {
			return false
		}
	}
	return false
}
