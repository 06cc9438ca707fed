package wireup

import (
	"encoding/binary"
	"fmt"
	"io"
)

// Version of the protocol. It changes with every change of a frame.
const Version = 5

// Bounds of the protocol's data. Addresses and keys have hundreds of bytes. Why not larger:
// the server would become a data path. Why not smaller: a rank's whole list of region keys
// would not fit.
const (
	MaxKey    = 256       // bytes of a key
	MaxValue  = 64 << 10  // bytes of one value
	MaxGather = 64 << 20  // bytes of all values of one AllGather
	MaxRanks  = 1<<16 - 1 // ranks in a job: keys name their owner in 16 bits, as its rank plus 1
	MaxSend   = 1 << 10   // bytes of one send: an address, and some room

	maxText      = 512
	maxHandshake = 256
	maxToServer  = MaxValue + MaxKey + 64
	maxToRank    = MaxGather + 4*MaxRanks + 64
)

const magic = "RMAW"

type msgType uint8

const (
	msgHello msgType = iota + 1
	msgJoin
	msgWelcome
	msgRefuse
	msgPut     // id, key, val → done
	msgGet     // id, rank, key → value or done
	msgGather  // id, key, val → values or done
	msgCancel  // id → done (timeout), unless the answer is in flight; a gather is given up for all
	msgAbort   // rank, text; both directions
	msgLeave   // the rank ends normally
	msgDone    // id, code, ranks, more, text
	msgValue   // id, val
	msgValues  // id, vals
	msgGone    // rank, text
	msgSend    // id, rank, key, val → done
	msgDeliver // rank, key, val
	msgGiveUp  // id, key → done: this rank does not take part in a gather
	msgMissing // id, key → done: ranks that have not joined a gather
	msgHung    // rank, text: the sender has found that rank to be hung
	msgTake    // key: remove the value that the sender has published under it
	numMsg
)

// code is the reason why a request has no value, or a join no welcome.
type code uint8

const (
	codeOK code = iota
	codeVersion
	codeToken
	codeSize
	codeRank
	codeDuplicate
	codeClosing
	codeGone
	codeTimeout
	codeTooLarge
	codeExists
	codeProtocol
	codeGivenUp
	codeUser
)

var codeErr = map[code]error{
	codeVersion: ErrVersion, codeToken: ErrToken, codeSize: ErrSize, codeRank: ErrRank,
	codeDuplicate: ErrDuplicateRank, codeClosing: ErrServerGone, codeGone: ErrPeerGone,
	codeTimeout: ErrTimeout, codeTooLarge: ErrTooLarge, codeExists: ErrExists, codeProtocol: ErrProtocol,
	codeGivenUp: ErrGivenUp, codeUser: ErrUser,
}

func (c code) err() error {
	if e, ok := codeErr[c]; ok {
		return e
	}
	return fmt.Errorf("%w: unknown code %d", ErrProtocol, c)
}

// message is any frame; typ determines which fields are used.
type message struct {
	typ     msgType
	code    code
	version uint16
	id      uint32
	rank    uint32
	size    uint32 // join: job size; done: number of missing ranks beyond the list
	ranks   []uint32
	key     string
	text    string
	val     []byte
	vals    [][]byte
	nonce   [nonceSize]byte
	mac     [macSize]byte
}

// listed returns the ranks of a done.
func (m *message) listed() (ranks []int) {
	for _, r := range m.ranks {
		ranks = append(ranks, int(r))
	}
	return ranks
}

var le = binary.LittleEndian

// append appends the whole frame, length first.
func (m *message) append(b []byte) []byte {
	at := len(b)
	b = append(b, 0, 0, 0, 0, byte(m.typ))
	switch m.typ {
	case msgHello:
		b = append(b, magic...)
		b = le.AppendUint16(b, m.version)
		b = append(b, m.nonce[:]...)
	case msgJoin:
		b = append(b, magic...)
		b = le.AppendUint16(b, m.version)
		b = le.AppendUint32(b, m.rank)
		b = le.AppendUint32(b, m.size)
		b = append(b, m.nonce[:]...)
		b = append(b, m.mac[:]...)
	case msgWelcome:
		b = append(b, m.mac[:]...)
	case msgRefuse:
		b = append(b, byte(m.code))
		b = le.AppendUint16(b, m.version)
		b = appendString(b, clip(m.text))
	case msgPut, msgGather:
		b = le.AppendUint32(b, m.id)
		b = appendString(b, m.key)
		b = appendBytes(b, m.val)
	case msgGet:
		b = le.AppendUint32(b, m.id)
		b = le.AppendUint32(b, m.rank)
		b = appendString(b, m.key)
	case msgSend:
		b = le.AppendUint32(b, m.id)
		b = le.AppendUint32(b, m.rank)
		b = appendString(b, m.key)
		b = appendBytes(b, m.val)
	case msgDeliver:
		b = le.AppendUint32(b, m.rank)
		b = appendString(b, m.key)
		b = appendBytes(b, m.val)
	case msgGiveUp, msgMissing:
		b = le.AppendUint32(b, m.id)
		b = appendString(b, m.key)
	case msgCancel:
		b = le.AppendUint32(b, m.id)
	case msgAbort, msgGone, msgHung:
		b = le.AppendUint32(b, m.rank)
		b = appendString(b, clip(m.text))
	case msgLeave:
	case msgTake:
		b = appendString(b, m.key)
	case msgDone:
		b = le.AppendUint32(b, m.id)
		b = append(b, byte(m.code))
		b = append(b, byte(len(m.ranks)))
		for _, r := range m.ranks {
			b = le.AppendUint32(b, r)
		}
		b = le.AppendUint32(b, m.size)
		b = appendString(b, clip(m.text))
	case msgValue:
		b = le.AppendUint32(b, m.id)
		b = appendBytes(b, m.val)
	case msgValues:
		b = le.AppendUint32(b, m.id)
		b = appendVals(b, m.vals)
	}
	le.PutUint32(b[at:], uint32(len(b)-at-4))
	return b
}

// parse parses a frame without its length. It keeps no reference to b except val and vals,
// which alias it. The sender is not trusted: every length is checked against the remaining
// data, and left-over bytes are an error.
func parse(b []byte) (message, error) {
	r := reader{b: b}
	m := message{typ: msgType(r.u8())}
	switch m.typ {
	case msgHello:
		r.magic()
		if m.version = r.u16(); m.version != Version && !r.bad {
			return m, nil // another version's layout: only the number is known
		}
		r.fixed(m.nonce[:])
	case msgJoin:
		r.magic()
		if m.version = r.u16(); m.version != Version && !r.bad {
			return m, nil
		}
		m.rank = r.u32()
		m.size = r.u32()
		r.fixed(m.nonce[:])
		r.fixed(m.mac[:])
	case msgWelcome:
		r.fixed(m.mac[:])
	case msgRefuse:
		m.code = code(r.u8())
		m.version = r.u16()
		m.text = r.str(maxText)
	case msgPut, msgGather:
		m.id = r.u32()
		m.key = r.str(MaxKey)
		m.val = r.bytes(MaxValue)
	case msgGet:
		m.id = r.u32()
		m.rank = r.u32()
		m.key = r.str(MaxKey)
	case msgSend:
		m.id = r.u32()
		m.rank = r.u32()
		m.key = r.str(MaxKey)
		m.val = r.bytes(MaxSend)
	case msgDeliver:
		m.rank = r.u32()
		m.key = r.str(MaxKey)
		m.val = r.bytes(MaxSend)
	case msgGiveUp, msgMissing:
		m.id = r.u32()
		m.key = r.str(MaxKey)
	case msgCancel:
		m.id = r.u32()
	case msgAbort, msgGone, msgHung:
		m.rank = r.u32()
		m.text = r.str(maxText)
	case msgLeave:
	case msgTake:
		m.key = r.str(MaxKey)
	case msgDone:
		m.id = r.u32()
		m.code = code(r.u8())
		for n := int(r.u8()); n > 0 && !r.bad; n-- {
			m.ranks = append(m.ranks, r.u32())
		}
		m.size = r.u32()
		m.text = r.str(maxText)
	case msgValue:
		m.id = r.u32()
		m.val = r.bytes(MaxValue)
	case msgValues:
		m.id = r.u32()
		n := r.u32()
		if n > MaxRanks || uint64(n)*4 > uint64(len(r.b)) {
			r.bad = true
			break
		}
		m.vals = make([][]byte, 0, n)
		for range n {
			m.vals = append(m.vals, r.bytes(MaxValue))
		}
	default:
		return message{}, fmt.Errorf("%w: frame type %d", ErrProtocol, m.typ)
	}
	if r.bad || len(r.b) != 0 {
		return message{}, fmt.Errorf("%w: malformed frame of type %d, %d bytes", ErrProtocol, m.typ, len(b))
	}
	return m, nil
}

// readFrame reads one frame of at most limit bytes.
func readFrame(c io.Reader, limit uint32) (message, error) {
	var head [4]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return message{}, err
	}
	n := le.Uint32(head[:])
	if n == 0 || n > limit {
		return message{}, fmt.Errorf("%w: frame of %d bytes, at most %d allowed here", ErrProtocol, n, limit)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(c, b); err != nil {
		return message{}, err
	}
	return parse(b)
}

func appendString(b []byte, s string) []byte {
	b = le.AppendUint16(b, uint16(len(s)))
	return append(b, s...)
}

func appendBytes(b, v []byte) []byte {
	b = le.AppendUint32(b, uint32(len(v)))
	return append(b, v...)
}

func appendVals(b []byte, vals [][]byte) []byte {
	b = le.AppendUint32(b, uint32(len(vals)))
	for _, v := range vals {
		b = appendBytes(b, v)
	}
	return b
}

func clip(s string) string { return s[:min(len(s), maxText)] }

// reader removes fields from the front of b. After the first missing one, bad is set and
// all fields read as zero.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) take(n int) []byte {
	if r.bad || n > len(r.b) {
		r.bad = true
		return nil
	}
	v := r.b[:n:n]
	r.b = r.b[n:]
	return v
}

func (r *reader) u8() uint8 {
	if v := r.take(1); v != nil {
		return v[0]
	}
	return 0
}

func (r *reader) u16() uint16 {
	if v := r.take(2); v != nil {
		return le.Uint16(v)
	}
	return 0
}

func (r *reader) u32() uint32 {
	if v := r.take(4); v != nil {
		return le.Uint32(v)
	}
	return 0
}

func (r *reader) fixed(dst []byte) { copy(dst, r.take(len(dst))) }

func (r *reader) magic() {
	if string(r.take(len(magic))) != magic {
		r.bad = true
	}
}

func (r *reader) str(limit int) string {
	n := int(r.u16())
	if n > limit {
		r.bad = true
	}
	return string(r.take(n))
}

func (r *reader) bytes(limit uint32) []byte {
	n := r.u32()
	if n > limit {
		r.bad = true
		return nil
	}
	return r.take(int(n))
}
