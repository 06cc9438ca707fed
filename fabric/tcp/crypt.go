package tcp

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/seed33544411/rma/internal/enum"
)

// Crypt is the protection of a connection. The stronger of the two sides' choices is used.
type Crypt uint8

// Protections of a connection, each stronger than the one before. CryptDefault is CryptOff
// between processes of a host and CryptAuth between hosts.
const (
	CryptDefault Crypt = iota
	CryptOff           // none, except for the handshake
	CryptAuth          // authenticated: modifying the data only ends the connection
	CryptFull          // authenticated and encrypted
	numCrypts
)

var cryptNames = [numCrypts]string{"default", "off", "auth", "full"}

func (c Crypt) String() string { return enum.Name("crypt", cryptNames[:], c) }

// known reports whether c can be agreed on.
func (c Crypt) known() bool { return c > CryptDefault && c < numCrypts }

// ParseCrypt parses `off`, `auth` or `full`; empty leaves the choice to the link.
func ParseCrypt(s string) (Crypt, error) {
	if s == "" {
		return CryptDefault, nil
	}
	if c, ok := enum.Parse[Crypt](cryptNames[:], s); ok && c.known() {
		return c, nil
	}
	return 0, fmt.Errorf("tcp: %q: want off, auth or full", s)
}

// of returns the protection for peers of a class.
func (c Crypt) of(class Class) Crypt {
	switch {
	case c != CryptDefault:
		return c
	case class == ClassHost:
		return CryptOff
	}
	return CryptAuth
}

// keys are the keys of a connection, unused if it is not protected.
type keys struct {
	crypt      Crypt
	send, recv [keySize]byte
}

// Each direction of each connection has its own key. The salt is the transcript, which
// contains the lane and both challenges.
const (
	purposeDialled = "rma tcp 4 keys of the dialled"
	purposeDialler = "rma tcp 4 keys of the dialler"
	purposeNext    = "rma tcp 4 next key"
	keySize        = 16
)

// keys derives the keys of the connection with handshake t. dialled and dialler are the
// tokens of the two endpoints.
func (t *transcript) keys(dialled, dialler token, crypt Crypt, dials bool) (k keys, err error) {
	if k.crypt = crypt; crypt <= CryptOff {
		return k, nil
	}
	salt := sha256.Sum256(t.said[:t.n])
	secret := append(dialled[:], dialler[:]...)
	of := func(purpose string) (key [keySize]byte) {
		b, e := hkdf.Key(sha256.New, secret, salt[:], purpose, keySize)
		err = errors.Join(err, e)
		copy(key[:], b)
		return key
	}
	k.send, k.recv = of(purposeDialler), of(purposeDialled)
	if !dials {
		k.send, k.recv = k.recv, k.send
	}
	return k, err
}

func newGCM(key []byte) (cipher.AEAD, error) {
	b, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(b)
}
