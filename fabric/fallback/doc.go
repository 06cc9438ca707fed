// Package fallback makes one link of two: RDMA, say, and TCP. An endpoint is connected over the first, or,
// if one of the two sides cannot use that (Fallible), or asks for the second (EndpointOptions.Second), over
// the second. It stays with its link, unless the first lets the second carry on its endpoints (fabric.Carried): when it is
// down, a new one may use the other.
//
// Regions belong to both, with the keys of the first, so that keys that peers hold remain valid whatever
// carries their requests. If the device of the first is gone, new regions belong to the second alone.
//
// Once an endpoint is connected it is one of its link's own, which costs a request nothing; until an endpoint
// uses the second link, a poll costs one comparison more.
//
// Atomics of both links on the same word do not exclude each other, unless the first has Caps.AtomicCPU:
// Fork.Over says so, and leaves it to the caller not to post any.
package fallback
