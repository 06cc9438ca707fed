package wireup

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
)

const (
	nonceSize = 32
	macSize   = sha256.Size
)

func newNonce() (n [nonceSize]byte) {
	rand.Read(n[:]) // never fails: crypto/rand ends the process rather than return weak bytes
	return n
}

// joinMAC proves that the rank knows the token; welcomeMAC that the server
// does. Both cover both nonces, so that neither can be replayed, and differ in
// their label, so that neither can be reflected.
func joinMAC(token []byte, server, client [nonceSize]byte, rank, size uint32) [macSize]byte {
	return mac(token, "rma wireup join", server, client, rank, size)
}

func welcomeMAC(token []byte, server, client [nonceSize]byte, rank, size uint32) [macSize]byte {
	return mac(token, "rma wireup welcome", server, client, rank, size)
}

func mac(token []byte, label string, server, client [nonceSize]byte, rank, size uint32) (out [macSize]byte) {
	h := hmac.New(sha256.New, token)
	b := appendString(nil, label)
	b = le.AppendUint16(b, Version)
	b = append(b, server[:]...)
	b = append(b, client[:]...)
	b = le.AppendUint32(b, rank)
	b = le.AppendUint32(b, size)
	h.Write(b)
	h.Sum(out[:0])
	return out
}

func macEqual(a, b [macSize]byte) bool { return hmac.Equal(a[:], b[:]) }
