//go:build linux || darwin || freebsd

package tcp

import "github.com/seed33544411/rma/fabric"

const (
	// rxSize is the size of the receive buffer: one receive of small frames. A large frame
	// that begins in it is copied as far as it has arrived.
	rxSize = 32 << 10

	// directMin is the remaining payload in bytes from which it is received directly into
	// place.
	directMin = 2 << 10

	// trailer is the number of bytes after the payload that a direct receive adds to the
	// receive buffer: enough for the held-back last word and the next header, and so few
	// that hardly any of the next payload is copied.
	trailer = 256

	// maxScatter bounds the bytes that one receive scatters over the pieces of a read,
	// because an int may have 32 bits.
	maxScatter = 1 << 30

	// rxBudget bounds the receives of one visit.
	rxBudget = 16
)

// States of the incoming byte stream.
const (
	rxHeader   uint8 = iota // at the start of a frame
	rxWrite                 // in the payload of a peer's write
	rxReply                 // in the payload of a reply to a read of ours
	rxSkip                  // in payload to discard
	rxOperands              // at the operands of an atomic
	rxResult                // at the result of an atomic of ours
)

// incoming is the incoming byte stream of the first connection. Bytes buf[r:w] are received
// and not consumed.
type incoming struct {
	sock   *socket
	buf    []byte
	r, w   int
	h      header // of the current frame
	left   int64  // bytes of its payload not consumed yet, up to maxMessage
	st     uint8
	paused bool   // too many notifications wait for delivery
	held   bool   // a request waits for the payload of the one before it
	copied uint64 // bytes of large payload that were copied through buf
}

// have returns the bytes that are received and not consumed.
func (x *incoming) have() []byte { return x.buf[x.r:x.w] }

// restart drops what was received and not consumed: the stream continues on another connection.
func (x *incoming) restart() { *x = incoming{sock: x.sock, buf: x.buf, copied: x.copied} }

func (x *incoming) skip(n uint64) {
	x.left = int64(n)
	if n != 0 {
		x.st = rxSkip
	}
}

// discard consumes unneeded payload, as far as it has arrived.
func (x *incoming) discard() (all bool) {
	n := int(min(int64(x.w-x.r), x.left))
	x.r += n
	if x.left -= int64(n); x.left > 0 {
		return false
	}
	x.st = rxHeader
	return true
}

// fetch receives more into the rest of the buffer, at most want bytes.
func (x *incoming) fetch() (n, want int, err error) {
	if x.r > 0 { // at most a partial header or word is left
		x.w = copy(x.buf, x.buf[x.r:x.w])
		x.r = 0
	}
	b := x.buf[x.w:]
	v := &x.sock.sys.iov
	v[0] = iovec{uintptr(fabric.Addr(b)), uintptr(len(b))}
	n, err = x.sock.recv(v[:1], len(b))
	x.w += n
	return n, len(b), err
}

// direct receives payload into the first k pieces of the scratch, total bytes, and, if rest
// says that at most a word of it follows, a little more into the buffer, which must be
// empty. want is the number of bytes it could have received.
func (x *incoming) direct(k, total int, rest bool) (n, want int, err error) {
	v := &x.sock.sys.iov
	want = total
	if rest {
		v[k] = iovec{uintptr(fabric.Addr(x.buf)), trailer}
		k++
		want += trailer
	}
	n, err = x.sock.recv(v[:k], want)
	got := min(n, total)
	x.left -= int64(got)
	x.r, x.w = 0, n-got
	return n, want, err
}
