package wireup

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
)

const (
	nonceSize = 32
	macSize   = sha256.Size
	keySize   = 32 // AES-256
)

func newNonce() (n [nonceSize]byte) {
	rand.Read(n[:]) // never fails: crypto/rand ends the process rather than return weak bytes
	return n
}

// handshake is the common state of both sides of a handshake: the job's token, and the
// messages sent in the clear. Proofs and keys cover all of it.
type handshake struct {
	token   []byte
	binding []byte // of the surrounding TLS session; nil without one
	server  [nonceSize]byte
	client  [nonceSize]byte
	rank    uint32
	size    uint32
}

// transcript returns the messages so far, with a label.
func (h *handshake) transcript(label string) []byte {
	b := appendString(nil, label)
	b = le.AppendUint16(b, Version)
	b = append(b, h.server[:]...)
	b = append(b, h.client[:]...)
	b = le.AppendUint32(b, h.rank)
	b = le.AppendUint32(b, h.size)
	return append(b, h.binding...)
}

// joinMAC proves that the rank knows the token; welcomeMAC that the server
// does. Both cover both nonces, so that neither can be replayed, the TLS session,
// so that neither can be used in another, and differ in their label, so that
// neither can be reflected.
func (h *handshake) joinMAC() [macSize]byte    { return h.mac("rma wireup join") }
func (h *handshake) welcomeMAC() [macSize]byte { return h.mac("rma wireup welcome") }

func (h *handshake) mac(label string) (out [macSize]byte) {
	m := hmac.New(sha256.New, h.token)
	m.Write(h.transcript(label))
	m.Sum(out[:0])
	return out
}

func macEqual(a, b [macSize]byte) bool { return hmac.Equal(a[:], b[:]) }

// keys returns the keys of the two directions: from the rank, and from the server. Deriving
// them requires the token.
func (h *handshake) keys() (fromRank, fromServer cipher.AEAD, err error) {
	salt := sha256.Sum256(h.transcript("rma wireup traffic"))
	both, err := hkdf.Key(sha256.New, h.token, salt[:], "rma wireup keys", 2*keySize)
	if err != nil {
		return nil, nil, err
	}
	if fromRank, err = newAEAD(both[:keySize]); err != nil {
		return nil, nil, err
	}
	fromServer, err = newAEAD(both[keySize:])
	return fromRank, fromServer, err
}

func newAEAD(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	if err != nil { // under GODEBUG=fips140=only, which requires random nonces
		return nil, fmt.Errorf("%w: seal with AES-GCM: %w", errors.ErrUnsupported, err)
	}
	return aead, nil
}

// binding returns a value that identifies the TLS session of conn, the same on both sides
// and different for every session; nil if conn has none. It completes the session's
// handshake.
func binding(ctx context.Context, conn net.Conn) ([]byte, error) {
	c, ok := conn.(*tls.Conn)
	if !ok {
		return nil, nil
	}
	if err := c.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	state := c.ConnectionState()
	b, err := state.ExportKeyingMaterial("EXPORTER-rma-wireup", nil, sha256.Size)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrTLS, err)
	}
	return b, nil
}
