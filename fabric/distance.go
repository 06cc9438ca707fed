package fabric

import "time"

// Distant is implemented by endpoints that know how far away their peer is, over a network.
type Distant interface {
	// Distance returns what Connect measured. Constant once Connect has returned.
	Distance() Distance
}

// Distance is how far away a peer is.
type Distance struct {
	Class string        // "host": this host; "near"; "long": farther than the link's bound
	RTT   time.Duration // shortest round trip seen while connecting; 0: unknown
}
