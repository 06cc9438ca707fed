package tcp

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/seed33544411/rma/fabric"
)

// The handshake makes one connection of two endpoints that know each other's
// address; the side with the smaller nonce dials. Four messages, little-endian:
//
//	hello      0 "rmaT"  4 version (2)  6 lane (1)  7 lanes (1)  8 to (8)  16 from (8)
//	           24 reads (4)  28 crypt (1)  29 zero (3)  32 challenge (16)
//	           48 attempt (4)  52 tally (12)
//	challenge  16 random bytes of the side that was dialled
//	proof      HMAC-SHA256 of hello and challenge
//	answer     0 reads (4)  4 lanes (1)  5 crypt (1)  6 end (1)  7 zero (1)  8 attempt (4)  12 tally (12)
//	           24 HMAC-SHA256 (32) of hello, challenge, proof and the first 24 bytes of the answer
//
// The key of the proof is the token in the address of the endpoint that is dialled, that of
// the answer the token in the dialler's address: each shows that its sender received that
// address. The tokens themselves are never sent. to and from are the nonces of the two
// endpoints. reads is the largest number of reads and atomics that the sender will have
// outstanding. lane is the number of this connection: 0 for the first, which represents the
// endpoint, then 1 to lanes. The dialling side proposes a number of lanes and a minimum
// Crypt; the answer contains the number of lanes, at most that, and the Crypt that is used,
// at least that.
//
// attempt is 0 if the sender does not resume a lost connection. Otherwise the first connection of
// two endpoints has 1, and each that is dialled in place of a lost one a larger number than all
// before it. The answer contains the same number, or 0 if its sender does not resume. From 2 on, and
// on lane 0, tally says what the sender has done; else it is zero. In place of a lost connection the
// answer may say that its sender's endpoint has ended: end is then not 0 (ended.go).
const (
	helloSize     = 64
	challengeSize = 16
	proofSize     = sha256.Size
	answerFields  = 24
	answerSize    = answerFields + sha256.Size
)

// helloMagic begins a hello.
const helloMagic = "rmaT"

// Each key has one purpose. Authenticated text begins with it.
const (
	purposeProof  = "rma tcp 4 proof\x00"
	purposeAnswer = "rma tcp 4 answer"
)

// maxPeerReads bounds the outstanding reads of a peer that this side keeps track of (24
// bytes each).
const maxPeerReads = 4096

var (
	errNotHello = errors.New("not a peer of this protocol")
	errVersion  = errors.New("peer has another version of the protocol")
	errNotPeer  = errors.New("answer does not authenticate the peer")
)

type hello struct {
	to, from  uint64
	challenge [challengeSize]byte
	reads     uint32
	lane      uint8
	lanes     uint8
	crypt     Crypt
	attempt   uint32
	tally
}

// tally is how far one side has come with the requests of both. The numbers count modulo 2^32, as
// the sequence numbers of requests.
type tally struct {
	executed uint32 // requests of the other side that it has executed
	answered uint32 // own reads and atomics whose answer it has received, or whose answer was announced for the lanes
	accepted uint32 // reads and atomics of the other side that it has accepted
}

func (t *tally) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, t.executed)
	b = binary.LittleEndian.AppendUint32(b, t.answered)
	return binary.LittleEndian.AppendUint32(b, t.accepted)
}

// parse reads the tally of a connection of that lane and attempt.
func (t *tally) parse(b []byte, lane uint8, attempt uint32) bool {
	t.executed = binary.LittleEndian.Uint32(b)
	t.answered = binary.LittleEndian.Uint32(b[4:])
	t.accepted = binary.LittleEndian.Uint32(b[8:])
	return *t == tally{} || lane == 0 && attempt > firstAttempt
}

func (h *hello) append(b []byte) []byte {
	b = append(b, helloMagic...)
	b = binary.LittleEndian.AppendUint16(b, wireVersion)
	b = append(b, h.lane, h.lanes)
	b = binary.LittleEndian.AppendUint64(b, h.to)
	b = binary.LittleEndian.AppendUint64(b, h.from)
	b = binary.LittleEndian.AppendUint32(b, h.reads)
	b = append(b, byte(h.crypt), 0, 0, 0)
	b = append(b, h.challenge[:]...)
	b = binary.LittleEndian.AppendUint32(b, h.attempt)
	return h.tally.append(b)
}

func (h *hello) parse(b []byte) error {
	if len(b) < helloSize || string(b[:len(helloMagic)]) != helloMagic {
		return errNotHello
	}
	if v := binary.LittleEndian.Uint16(b[4:]); v != wireVersion {
		return fmt.Errorf("%w: %d, this side %d: use the same release on both", errVersion, v, wireVersion)
	}
	h.lane, h.lanes = b[6], b[7]
	h.to = binary.LittleEndian.Uint64(b[8:])
	h.from = binary.LittleEndian.Uint64(b[16:])
	h.reads = binary.LittleEndian.Uint32(b[24:])
	h.crypt = Crypt(b[28])
	copy(h.challenge[:], b[32:])
	h.attempt = binary.LittleEndian.Uint32(b[48:])
	if !h.tally.parse(b[52:], h.lane, h.attempt) || b[29]|b[30]|b[31] != 0 || h.lanes > maxLanes || h.lane > h.lanes || h.reads > maxPeerReads || !h.crypt.known() {
		return errNotHello
	}
	return nil
}

// end says in an answer how the endpoint of its sender has ended: 0 if it has not, endClosed, or the
// fabric.Status with which it has refused a request: the one that follows those that are executed
// or, with endLate, a read that had been accepted, whose number is in the place of tally.answered.
type end uint8

const (
	endClosed end = 1
	endLate   end = 1 << 7
)

// status returns the status of the refused request.
func (x end) status() fabric.Status { return fabric.Status(x &^ endLate) }

// known reports whether x is one of the ends.
func (x end) known() bool {
	switch x.status() {
	case fabric.StatusRemoteAccess, fabric.StatusRemoteInvalid, fabric.StatusRemoteOp:
		return true
	}
	return x <= endClosed
}

// inquiry is the attempt of a connection on which the side that does not dial asks whether the other
// endpoint has ended. One that has not hangs up.
const inquiry = math.MaxUint32

// answer is the last message without its authentication.
type answer struct {
	reads   uint32
	lanes   uint8
	crypt   Crypt
	end     end
	attempt uint32
	tally
}

func (a *answer) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, a.reads)
	b = append(b, a.lanes, byte(a.crypt), byte(a.end), 0)
	b = binary.LittleEndian.AppendUint32(b, a.attempt)
	return a.tally.append(b)
}

// parse reads the answer to h.
func (a *answer) parse(b []byte, h *hello) error {
	if len(b) < answerFields || b[7] != 0 {
		return errNotHello
	}
	a.reads, a.lanes, a.crypt, a.end = binary.LittleEndian.Uint32(b), b[4], Crypt(b[5]), end(b[6])
	a.attempt = binary.LittleEndian.Uint32(b[8:])
	if !a.tally.parse(b[12:], h.lane, a.attempt) || a.attempt != h.attempt && (a.attempt != 0 || h.attempt > firstAttempt) {
		return errNotHello
	}
	if a.end != 0 && (h.lane != 0 || h.attempt <= firstAttempt || !a.end.known()) {
		return errNotHello
	}
	if a.lanes > h.lanes || a.reads > maxPeerReads || !a.crypt.known() || a.crypt < h.crypt {
		return errNotHello
	}
	return nil
}

// transcript contains the messages of a handshake so far, in order.
type transcript struct {
	said [helloSize + challengeSize + proofSize + answerSize]byte
	n    int
}

// add appends b and returns its copy.
func (t *transcript) add(b []byte) []byte {
	place := t.next(len(b))
	copy(place, b)
	return place
}

// next returns the place for the next n bytes.
func (t *transcript) next(n int) []byte {
	t.n += n
	return t.said[t.n-n : t.n : t.n]
}

// sign appends the proof that this side knows k, and returns it.
func (t *transcript) sign(k *token, purpose string) []byte {
	return t.add(t.mac(k, purpose, t.n))
}

// signed reports whether the last message proves that its sender knows k. It takes constant
// time.
func (t *transcript) signed(k *token, purpose string) bool {
	before := t.n - sha256.Size
	return hmac.Equal(t.said[before:t.n], t.mac(k, purpose, before))
}

func (t *transcript) mac(k *token, purpose string, n int) []byte {
	m := hmac.New(sha256.New, k[:])
	_, _ = m.Write([]byte(purpose)) // never fails
	_, _ = m.Write(t.said[:n])
	return m.Sum(nil)
}

// newChallenge never fails.
func newChallenge() (c [challengeSize]byte) {
	_, _ = rand.Read(c[:])
	return c
}
