//go:build linux || darwin || freebsd

package tcp

import (
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/offheap"
)

// A protected connection is two streams of records in place of two streams of bytes:
//
//	0 n: bytes (4)   4 data (n), under CryptFull encrypted   4+n tag (16)
//
// The tag is that of AES-128-GCM, over length and data, with the record's number in its
// direction as the nonce. Data that was changed, dropped, inserted, reordered or replayed
// has a wrong tag, and nothing of a record is used before its tag has been checked. A
// stream that is cut ends the connection, as without protection.
const (
	recordHead = 4
	tagSize    = 16
	maxRecord  = 32 << 10 // bytes of data

	// recordBuf is the size of one system call: fewer calls, and it still fits the cache.
	recordBuf = 4 * (recordHead + maxRecord + tagSize)

	// rekeyAfter is the number of records that share a key: TLS 1.3 allows 2^23.5 records
	// of this size.
	rekeyAfter = 1 << 22
)

// ErrForged means that data received on a connection is not what the peer sent: it was
// changed in transit.
var ErrForged = errors.New("data of the connection is not authentic: it was modified in transit")

var errForged = fmt.Errorf("tcp: %w: %w", fabric.ErrRemoteInvalid, ErrForged)

// forged is the error number of a receive of such data.
const forged = unix.EBADMSG

// stream is one direction of a protected connection.
type stream struct {
	aead  cipher.AEAD
	key   [keySize]byte
	nonce [12]byte
	seq   uint64
	buf   []byte
	r, w  int // buf[r:w] is waiting to be processed
}

// next prepares the nonce of the next record, and its key if that changes.
func (s *stream) next() error {
	if s.seq == rekeyAfter {
		key, err := hkdf.Expand(sha256.New, s.key[:], purposeNext, keySize)
		if err == nil {
			s.seq, s.key = 0, [keySize]byte(key)
			s.aead, err = newGCM(key)
		}
		if err != nil {
			return err
		}
	}
	binary.LittleEndian.PutUint64(s.nonce[4:], s.seq)
	s.seq++
	return nil
}

// records holds the two streams of a protected connection. It belongs to the owner.
type records struct {
	out, in stream
	crypt   Crypt
	owed    int // 1: the next byte to be sent is already in out, else 0
	r, w    int // in.buf[r:w] is data of a record with a correct tag
	mem     []byte
}

// newRecords returns nil for a connection that is not protected.
func newRecords(k *keys) (*records, error) {
	if k.crypt <= CryptOff {
		return nil, nil
	}
	mem, err := offheap.Alloc(2*recordBuf, offheap.Staging)
	if err != nil {
		return nil, err
	}
	c := &records{crypt: k.crypt, mem: mem}
	c.out.buf, c.in.buf = mem[:recordBuf:recordBuf], mem[recordBuf:]
	c.out.key, c.in.key = k.send, k.recv
	if c.out.aead, err = newGCM(k.send[:]); err == nil {
		c.in.aead, err = newGCM(k.recv[:])
	}
	if err != nil {
		c.free()
		return nil, err
	}
	return c, nil
}

func (c *records) free() {
	if c != nil {
		_ = offheap.Free(c.mem, offheap.Staging)
	}
}

// send seals the pieces of v, total bytes, and sends them to the socket. It returns the
// number of bytes sent. The last sealed byte counts only when the socket has taken all
// sealed data, so that the caller calls again. The pieces of the next call begin where this
// call's count ends.
func (c *records) send(fd int, v []iovec, total int) (n int, errno unix.Errno) {
	if errno = c.flush(fd); errno != 0 {
		return 0, errno
	}
	n, c.owed = c.owed, 0
	from := cursor{v: v}
	from.skip(n)
	for n < total && errno == 0 {
		for n < total && len(c.out.buf)-c.out.w > recordHead+tagSize {
			k, err := c.seal(&from, total-n)
			if err != nil {
				return 0, unix.EIO
			}
			n += k
		}
		errno = c.flush(fd)
	}
	switch {
	case errno == 0:
		return n, 0
	case (errno == unix.EAGAIN || errno == unix.EINTR) && n > 1:
		c.owed = 1
		return n - 1, 0
	case errno == unix.EAGAIN || errno == unix.EINTR:
		c.owed = n
	}
	return 0, errno
}

// flush sends the sealed records.
func (c *records) flush(fd int) unix.Errno {
	o := &c.out
	for o.r < o.w {
		n, errno := sendBytes(fd, fabric.Addr(o.buf[o.r:]), o.w-o.r)
		if errno != 0 {
			return errno
		}
		o.r += n
	}
	o.r, o.w = 0, 0
	return 0
}

// seal appends a record of at most limit bytes and returns its size.
func (c *records) seal(from *cursor, limit int) (int, error) {
	o := &c.out
	if err := o.next(); err != nil {
		return 0, err
	}
	head := o.buf[o.w:]
	n := min(limit, maxRecord, len(head)-recordHead-tagSize)
	binary.LittleEndian.PutUint32(head, uint32(n))
	data := head[recordHead : recordHead+n]
	from.read(data)
	if c.crypt == CryptAuth {
		o.aead.Seal(head[recordHead+n:recordHead+n], o.nonce[:], nil, head[:recordHead+n])
	} else {
		o.aead.Seal(data[:0], o.nonce[:], data, head[:recordHead])
	}
	o.w += recordHead + n + tagSize
	return n, nil
}

// recv fills the pieces of v, total bytes, as far as records have arrived. Like a socket's
// receive, it returns 0 bytes and no error at the end.
func (c *records) recv(fd int, v []iovec, total int) (n int, errno unix.Errno) {
	to := cursor{v: v}
	for n < total {
		if c.r == c.w {
			switch ok, err := c.open(); {
			case err != nil:
				return 0, forged
			case !ok:
				got, errno := c.fetch(fd)
				if errno == 0 && got > 0 {
					continue
				}
				if n > 0 {
					return n, 0 // the next call reports the rest
				}
				return got, errno
			}
		}
		k := min(c.w-c.r, total-n)
		to.write(c.in.buf[c.r : c.r+k])
		c.r += k
		n += k
	}
	return n, 0
}

// whole reports whether a record has arrived completely, and the size in its header.
func (c *records) whole() (n int, ok bool) {
	i := &c.in
	if i.w-i.r < recordHead {
		return 0, false
	}
	size := binary.LittleEndian.Uint32(i.buf[i.r:])
	if size == 0 || size > maxRecord {
		return -1, true
	}
	return int(size), i.w-i.r >= recordHead+int(size)+tagSize
}

// open makes the data of the next record available, if all of it has arrived.
func (c *records) open() (bool, error) {
	n, ok := c.whole()
	if !ok {
		return false, nil
	}
	i := &c.in
	if n < 0 {
		return false, errForged
	}
	if err := i.next(); err != nil {
		return false, err
	}
	head := i.buf[i.r : i.r+recordHead+n+tagSize]
	var err error
	if c.crypt == CryptAuth {
		_, err = i.aead.Open(nil, i.nonce[:], head[recordHead+n:], head[:recordHead+n])
	} else {
		_, err = i.aead.Open(head[recordHead:recordHead], i.nonce[:], head[recordHead:], head[:recordHead])
	}
	if err != nil {
		return false, err
	}
	c.r = i.r + recordHead
	c.w = c.r + n
	i.r += len(head)
	return true, nil
}

// fetch receives more of an incomplete record.
func (c *records) fetch(fd int) (int, unix.Errno) {
	i := &c.in
	i.w = copy(i.buf, i.buf[i.r:i.w])
	i.r = 0
	n, errno := recvBytes(fd, fabric.Addr(i.buf[i.w:]), len(i.buf)-i.w)
	if errno == 0 {
		i.w += n
	}
	return n, errno
}

// more reports data that recv would return and for which the socket has no event.
func (c *records) more() bool {
	if c == nil {
		return false
	}
	if c.r < c.w {
		return true
	}
	_, ok := c.whole()
	return ok
}

// cursor is a place in pieces of memory.
type cursor struct {
	v   []iovec
	off uintptr
}

// skip advances by n bytes.
func (c *cursor) skip(n int) {
	for left := uintptr(n); left > 0; {
		m := min(c.v[0].len-c.off, left)
		left -= m
		if c.off += m; c.off == c.v[0].len {
			c.v, c.off = c.v[1:], 0
		}
	}
}

// read fills b from the pieces; write does the reverse.
func (c *cursor) read(b []byte) {
	for len(b) > 0 {
		n := copy(b, c.here())
		b = b[n:]
		c.skip(n)
	}
}

func (c *cursor) write(b []byte) {
	for len(b) > 0 {
		n := copy(c.here(), b)
		b = b[n:]
		c.skip(n)
	}
}

// here returns the rest of the current piece.
func (c *cursor) here() []byte {
	for c.v[0].len == c.off {
		c.v, c.off = c.v[1:], 0
	}
	return fabric.BytesAt(uint64(c.v[0].base+c.off), int(c.v[0].len-c.off))
}
