package tcp

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"fmt"
)

// Crypt is how what goes over a connection is protected. The stronger of the two
// sides' choices holds.
type Crypt uint8

// Ways to protect a connection, each stronger than the one before. CryptDefault is
// CryptOff, the only one that the link has so far.
const (
	CryptDefault Crypt = iota
	CryptOff           // not at all, but for the handshake
	CryptAuth          // authenticated: who can change what is sent ends the connection, and no more
	CryptFull          // authenticated and encrypted
	numCrypts
)

var cryptNames = [numCrypts]string{"default", "off", "auth", "full"}

func (c Crypt) String() string {
	if c < numCrypts {
		return cryptNames[c]
	}
	return fmt.Sprintf("crypt(%d)", uint8(c))
}

// known reports whether c can be agreed on.
func (c Crypt) known() bool { return c > CryptDefault && c < numCrypts }

// ParseCrypt reads `off`, `auth` or `full`; empty leaves the choice to the link.
func ParseCrypt(s string) (Crypt, error) {
	for c, name := range cryptNames {
		if c != 0 && s == name || c == 0 && s == "" {
			return Crypt(c), nil
		}
	}
	return 0, fmt.Errorf("tcp: %q: want off, auth or full", s)
}

// of is what holds for peers of a class.
func (c Crypt) of(Class) Crypt {
	return max(c, CryptOff)
}

// keys are a connection's, nil where nothing is protected.
type keys struct {
	crypt      Crypt
	send, recv cipher.AEAD
}

// Each direction of each connection has a key of its own: the transcript, which names
// the lane and holds both challenges, is the salt.
const (
	purposeDialled = "rma tcp 3 keys of the dialled"
	purposeDialler = "rma tcp 3 keys of the dialler"
	keySize        = 16
)

// keys derives the keys of the connection whose handshake t is. dialled and dialler
// are the two endpoints' tokens.
func (t *transcript) keys(dialled, dialler token, crypt Crypt, dials bool) (k keys, err error) {
	if k.crypt = crypt; crypt <= CryptOff {
		return k, nil
	}
	salt := sha256.Sum256(t.said[:t.n])
	secret := append(dialled[:], dialler[:]...)
	if k.send, err = newAEAD(secret, salt[:], purposeDialler); err != nil {
		return k, err
	}
	if k.recv, err = newAEAD(secret, salt[:], purposeDialled); err != nil {
		return k, err
	}
	if !dials {
		k.send, k.recv = k.recv, k.send
	}
	return k, nil
}

func newAEAD(secret, salt []byte, purpose string) (cipher.AEAD, error) {
	key, err := hkdf.Key(sha256.New, secret, salt, purpose, keySize)
	if err != nil {
		return nil, err
	}
	b, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(b)
}
