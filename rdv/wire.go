package rdv

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/enum"
	"github.com/seed33544411/rma/scatter"
)

// Kind is the kind of a control message, and of its eager envelope.
type Kind uint8

// Control messages. S is the sender of the data, R the receiver.
const (
	KindInvalid Kind = iota
	KindRTS          // S→R: descriptor; arg is the tag
	KindFIN          // R→S: end of an RTS; arg is a status; the messages that were refused
	KindAdvert       // R→S: purpose and key of a destination; arg is the tag
	KindDone         // S→R: the advertised destination is written; arg is the number of bytes
	KindDecline      // S→R: the advertised destination will not be written; arg is the reason
	KindRevoke       // R→S: return the advert, if it is not in use
	KindOffer        // S→R: a message that is sent in chunks; arg is the tag
	KindReady        // R→S: the offer has a destination
	KindChunk        // S→R: region of the next chunk
	KindAck          // R→S: arg is the number of chunks fetched so far
	KindCTS          // R→S: destination of an RTS, and the word by which either end claims the transfer
	KindPlaced       // S→R: the last slice of a transfer after a CTS is written; there is no FIN
	KindShare        // S→R: source of a message that both ends copy to an advert; arg is the number of bytes
	KindFilled       // R→S: the last slice of it is read; there is no done
	numKinds
)

var kindNames = [numKinds]string{"invalid", "rts", "fin", "advert", "done", "decline", "revoke", "offer", "ready", "chunk", "ack", "cts", "placed", "share", "filled"}

// String returns the name of the kind.
func (k Kind) String() string { return enum.Name("kind", kindNames[:], k) }

// ID identifies a transfer or an advert: slot in the low 16 bits, generation of the slot
// above. The side that begins chooses it.
type ID uint32

func makeID(slot int, gen uint16) ID { return ID(slot) | ID(gen)<<16 }

func (i ID) slot() int   { return int(i & math.MaxUint16) }
func (i ID) gen() uint16 { return uint16(i >> 16) }

// String formats the id as slot.generation.
func (i ID) String() string { return fmt.Sprintf("%d.%d", i.slot(), i.gen()) }

// freeList returns the numbers of n slots, the first one last.
func freeList(n int) []uint16 {
	f := make([]uint16, n)
	for i := range f {
		f[i] = uint16(n - 1 - i)
	}
	return f
}

// Want is the purpose of an advert. It is transferred, not interpreted.
type Want struct {
	Pos       uint64
	Tag, Note uint32
}

// Statuses of a FIN.
const (
	statusOK uint32 = iota
	statusRefused
	statusWaited // all fetched, but not at once: the receiver had no destination at first
	numStatus
)

// The meta word of an envelope: id in the low half, argument in the high one.
func meta(id ID, arg uint32) uint64 { return uint64(id) | uint64(arg)<<32 }

// ProtocolError reports a violation of the protocol by the peer.
type ProtocolError struct {
	Kind Kind   // of the control message
	ID   ID     // of the transfer it names
	Why  error  // a sentinel, or an error that wraps one
	Have uint64 // the offending number
	Want uint64 // its bound
}

func (e *ProtocolError) Error() string {
	return fmt.Sprintf("%v: %v for %v: %v (%#x, bound %#x)", ErrProtocol, e.Kind, e.ID, e.Why, e.Have, e.Want)
}

// Unwrap returns ErrProtocol and the reason.
func (e *ProtocolError) Unwrap() []error { return []error{ErrProtocol, e.Why} }

// Lengths of payloads of fixed length, in bytes.
const (
	advertSize = 8 + fabric.RemoteKeySize + 4 + claimRefSize
	doneSize   = 12
	offerSize  = 16
	chunkSize  = scatter.RegionSize
)

func appendAdvert(b []byte, w Want, k fabric.RemoteKey, word claimRef) []byte {
	b = k.Append(binary.LittleEndian.AppendUint64(b, w.Pos))
	return word.append(binary.LittleEndian.AppendUint32(b, w.Note))
}

// parseAdvert parses an advert without its tag. why is nil if it is valid.
func parseAdvert(b []byte) (w Want, k fabric.RemoteKey, word claimRef, why error) {
	if len(b) != advertSize {
		return w, k, word, ErrMessage
	}
	w.Pos = binary.LittleEndian.Uint64(b)
	k, rest, err := fabric.ParseRemoteKey(b[8:])
	if err != nil || k.Len > math.MaxUint32 {
		return w, k, word, ErrMessage
	}
	w.Note = binary.LittleEndian.Uint32(rest)
	word, ok := parseClaimRef(rest[4:])
	if !ok {
		return w, k, word, ErrMessage
	}
	return w, k, word, nil
}

// doneNote is the content of a done besides the number of bytes written.
type doneNote struct {
	pos uint64
	tag uint32
}

func appendDone(b []byte, d doneNote) []byte {
	b = binary.LittleEndian.AppendUint64(b, d.pos)
	return binary.LittleEndian.AppendUint32(b, d.tag)
}

func parseDone(b []byte) (d doneNote, why error) {
	if len(b) != doneSize {
		return d, ErrMessage
	}
	return doneNote{pos: binary.LittleEndian.Uint64(b), tag: binary.LittleEndian.Uint32(b[8:])}, nil
}

// checkRefused checks the payload of a FIN with the refused messages of n: a bit for each,
// the first one lowest.
func checkRefused(b []byte, n int) (why error) {
	if len(b) != (n+7)/8 || n%8 != 0 && b[len(b)-1]>>(n%8) != 0 {
		return ErrMessage
	}
	if !slices.ContainsFunc(b, func(x byte) bool { return x != 0 }) {
		return ErrMessage // no message refused: then the status is wrong
	}
	return nil
}

// offerForm is the first byte of an offer, as that of a descriptor.
const offerForm = 1

func appendOffer(b []byte, m scatter.Message) []byte {
	b = append(b, offerForm, 0, 0, 0)
	b = binary.LittleEndian.AppendUint32(b, m.Size)
	return binary.LittleEndian.AppendUint64(b, m.Pos)
}

func parseOffer(b []byte) (m scatter.Message, why error) {
	if len(b) != offerSize || b[0] != offerForm || b[1]|b[2]|b[3] != 0 {
		return m, ErrMessage
	}
	m = scatter.Message{Size: binary.LittleEndian.Uint32(b[4:]), Pos: binary.LittleEndian.Uint64(b[8:])}
	if m.Size == 0 {
		return m, ErrMessage
	}
	return m, nil
}

func appendChunk(b []byte, r scatter.Region) []byte {
	b = binary.LittleEndian.AppendUint64(b, r.Addr)
	b = binary.LittleEndian.AppendUint32(b, r.Len)
	return binary.LittleEndian.AppendUint32(b, r.RKey)
}

func parseChunk(b []byte) (r scatter.Region, why error) {
	if len(b) != chunkSize {
		return r, ErrMessage
	}
	r = scatter.Region{Addr: binary.LittleEndian.Uint64(b), Len: binary.LittleEndian.Uint32(b[8:]), RKey: binary.LittleEndian.Uint32(b[12:])}
	if r.Len == 0 || uint64(r.Len) > math.MaxUint64-r.Addr {
		return r, ErrMessage
	}
	return r, nil
}

// claimRef is a claim word of the receiver, as the sender accesses it. Key 0: there is none.
type claimRef struct {
	addr uint64
	rkey uint32
}

const claimRefSize = 12

func (w claimRef) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, w.addr)
	return binary.LittleEndian.AppendUint32(b, w.rkey)
}

func parseClaimRef(b []byte) (w claimRef, ok bool) {
	w = claimRef{binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint32(b[8:])}
	return w, w.addr%8 == 0
}

const ctsSize = fabric.RemoteKeySize + claimRefSize

func appendCTS(b []byte, k fabric.RemoteKey, w claimRef) []byte { return w.append(k.Append(b)) }

func parseCTS(b []byte) (k fabric.RemoteKey, w claimRef, why error) {
	if len(b) != ctsSize {
		return k, w, ErrMessage
	}
	k, rest, err := fabric.ParseRemoteKey(b)
	w, ok := parseClaimRef(rest)
	if err != nil || k.Len == 0 || !ok || w.rkey == 0 {
		return k, w, ErrMessage
	}
	return k, w, nil
}

// sharing is the content of a SHARE besides the number of bytes.
type sharing struct {
	note doneNote
	addr uint64 // of the source
	rkey uint32
}

const shareSize = doneSize + 12

func appendShare(b []byte, s sharing) []byte {
	b = binary.LittleEndian.AppendUint64(appendDone(b, s.note), s.addr)
	return binary.LittleEndian.AppendUint32(b, s.rkey)
}

func parseShare(b []byte, n uint32) (s sharing, why error) {
	if len(b) != shareSize {
		return s, ErrMessage
	}
	s.note, _ = parseDone(b[:doneSize])
	s.addr, s.rkey = binary.LittleEndian.Uint64(b[doneSize:]), binary.LittleEndian.Uint32(b[doneSize+8:])
	if s.rkey == 0 || s.addr+uint64(n) < s.addr {
		return s, ErrMessage
	}
	return s, nil
}

// MaxRails is the number of connections of two peers, this channel's endpoint, number 0, among them.
const MaxRails = 4

// RailKeys are the keys of one region on further connections of two peers. Bit i of Has: the
// region has a key on number i, from 1.
type RailKeys struct {
	Has   uint8
	RKeys [MaxRails]uint32
}

// railKeysSize is the length of RailKeys behind a descriptor in bytes: Has (1), 3 reserved, and the
// keys from number 1 on.
const railKeysSize = 4 + 4*(MaxRails-1)

func (k *RailKeys) append(b []byte) []byte {
	b = append(b, k.Has, 0, 0, 0)
	for _, rkey := range k.RKeys[1:] {
		b = binary.LittleEndian.AppendUint32(b, rkey)
	}
	return b
}

// parseRailKeys parses what follows the descriptor of one message in one region.
func parseRailKeys(b []byte) (k RailKeys, why error) {
	if len(b) != railKeysSize || b[0] == 0 || b[0]&1 != 0 || b[0]>>MaxRails != 0 || b[1]|b[2]|b[3] != 0 {
		return k, ErrMessage
	}
	k.Has = b[0]
	for i := 1; i < MaxRails; i++ {
		k.RKeys[i] = binary.LittleEndian.Uint32(b[4*i:])
		if k.Has>>i&1 == 0 && k.RKeys[i] != 0 {
			return k, ErrMessage
		}
	}
	return k, nil
}
