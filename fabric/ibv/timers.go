package ibv

import "time"

// maxRetries is the highest retry count: 7 means for ever on rdma_rxe.
const maxRetries = 6

// retries encodes a peer time-out. A device sends a request 1 + maxRetries times
// and waits 4.096 µs · 2^code after each (adapters may take up to four times as
// long; rdma_rxe needs 4 to 18 % more), so the code is the largest whose seven
// waits do not exceed d; at least 8, 1 ms, below which a loaded peer's answers
// are late already.
func retries(d time.Duration) (code uint8) {
	for code = 8; code < 31 && (maxRetries+1)*(4096<<(code+1))*time.Nanosecond <= d; code++ {
	}
	return code
}

// rnrTicks are the waits that the codes of a receiver-not-ready timer mean, in
// units of 10 µs (InfiniBand Architecture, table of the AETH syndrome).
var rnrTicks = [32]int{65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768,
	1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152}

// rnrTimer is the code of how long peers wait when this side has no receive
// for their notification. They try seven times, so a side that does not poll
// for half of d is given up; not for longer, because every wait delays the
// notifications behind it as well, and not for shorter, because a poller that
// was descheduled must not cost the connection. 10 ms at least, 70 in all.
func rnrTimer(d time.Duration) (code uint8) {
	for code = 20; code < 31 && 7*time.Duration(rnrTicks[code])*10*time.Microsecond < d/2; code++ {
	}
	return code
}
