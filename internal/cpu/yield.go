package cpu

import "sync/atomic"

// lastYield is when a thread of this process has last returned from Yield, in Ticks.
var lastYield atomic.Int64
