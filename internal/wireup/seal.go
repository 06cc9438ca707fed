package wireup

import (
	"crypto/cipher"
	"errors"
	"fmt"
	"io"
)

// maxRecord bounds the plain bytes of a record, which a side must hold before it can
// authenticate them.
const maxRecord = 16 << 10

const (
	recordHead = 4
	tagSize    = 16
	lastRecord = 1 << 31 // in a record's head: the last record of a complete stream
)

// ErrForged means that received data is not what the other side has sent, or not in that
// order: it was modified in transit.
var ErrForged = errors.New("wire-up traffic was modified in transit")

// recordNonce returns the nonce of a record: its number in its direction. Every key is used
// for one direction of one connection.
func recordNonce(seq uint64) []byte { return le.AppendUint64(make([]byte, 0, 12), seq)[:12] }

// sealer encrypts data written to it, in records. After an error nothing can follow.
type sealer struct {
	to   io.Writer
	aead cipher.AEAD
	seq  uint64
	buf  []byte // head and plain bytes of the record being filled
}

// Write adds p to the data for Flush; it sends full records at once.
func (s *sealer) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		if len(s.buf) == 0 {
			s.buf = append(s.buf, make([]byte, recordHead)...)
		}
		k := min(len(p), recordHead+maxRecord-len(s.buf))
		s.buf = append(s.buf, p[:k]...)
		if p = p[k:]; len(s.buf) == recordHead+maxRecord {
			if err := s.Flush(); err != nil {
				return 0, err
			}
		}
	}
	return n, nil
}

// Flush sends the written data.
func (s *sealer) Flush() error {
	if len(s.buf) <= recordHead {
		return nil
	}
	return s.record(0)
}

// Close sends the written data and the last record.
func (s *sealer) Close() error {
	if err := s.Flush(); err != nil {
		return err
	}
	s.buf = append(s.buf[:0], make([]byte, recordHead)...)
	return s.record(lastRecord)
}

func (s *sealer) record(flag uint32) error {
	head, plain := s.buf[:recordHead], s.buf[recordHead:]
	le.PutUint32(head, uint32(len(plain)+tagSize)|flag)
	s.buf = s.aead.Seal(head, recordNonce(s.seq), plain, head)
	s.seq++
	_, err := s.to.Write(s.buf)
	if s.buf = s.buf[:0]; cap(s.buf) > 1<<10 {
		s.buf = nil // connections are mostly idle
	}
	return err
}

// opener decrypts the records of a sealer. Read returns only authenticated bytes, io.EOF
// after the sealer's Close, io.ErrUnexpectedEOF if the stream is cut off, and an error that
// wraps ErrForged.
type opener struct {
	from io.Reader
	aead cipher.AEAD
	seq  uint64
	buf  []byte
	rest []byte // of buf: plain bytes that were not read yet
	err  error
}

func (o *opener) Read(p []byte) (int, error) {
	for len(o.rest) == 0 && o.err == nil {
		o.rest, o.err = o.record()
	}
	if len(o.rest) == 0 {
		return 0, o.err
	}
	n := copy(p, o.rest)
	o.rest = o.rest[n:]
	return n, nil
}

func (o *opener) record() ([]byte, error) {
	var head [recordHead]byte
	if _, err := io.ReadFull(o.from, head[:]); err != nil {
		return nil, cutOff(err)
	}
	n, last := le.Uint32(head[:])&^lastRecord, le.Uint32(head[:])&lastRecord != 0
	// A last record is empty, and no other is: each makes progress.
	if n < tagSize || n > tagSize+maxRecord || (n == tagSize) != last {
		return nil, fmt.Errorf("%w: record of %d bytes", ErrForged, n)
	}
	if uint32(cap(o.buf)) < n {
		o.buf = make([]byte, n)
	}
	sealed := o.buf[:n]
	if _, err := io.ReadFull(o.from, sealed); err != nil {
		return nil, cutOff(err)
	}
	plain, err := o.aead.Open(sealed[:0], recordNonce(o.seq), sealed, head[:])
	if err != nil {
		return nil, fmt.Errorf("%w: record %d fails authentication", ErrForged, o.seq)
	}
	o.seq++
	if last {
		return nil, io.EOF
	}
	return plain, nil
}

// cutOff returns the error of a stream that ends without its last record.
func cutOff(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
