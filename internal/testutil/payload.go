package testutil

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// word returns the 8 payload bytes at offset 8*i (splitmix64): neighbours, other seeds and
// shifted offsets appear unrelated.
func word(seed, i uint64) uint64 {
	z := seed*0xd1342543de82ef95 + (i+1)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// PayloadByte returns the byte that Fill writes for absolute offset off.
func PayloadByte(seed, off uint64) byte {
	return byte(word(seed, off/8) >> (8 * (off % 8)))
}

// Fill writes to b the bytes [off, off+len(b)) of the infinite payload of seed. It does not
// allocate.
func Fill(b []byte, seed, off uint64) {
	for len(b) > 0 && off%8 != 0 {
		b[0] = PayloadByte(seed, off)
		b, off = b[1:], off+1
	}
	for ; len(b) >= 8; b, off = b[8:], off+8 {
		binary.LittleEndian.PutUint64(b, word(seed, off/8))
	}
	for i := range b {
		b[i] = PayloadByte(seed, off+uint64(i))
	}
}

// Payload returns the bytes [off, off+n) of the payload of seed.
func Payload(n int, seed, off uint64) []byte {
	b := make([]byte, n)
	Fill(b, seed, off)
	return b
}

// Verify returns an error that names the first byte of b that differs from the result of
// Fill(b, seed, off), nil if there is none.
func Verify(b []byte, seed, off uint64) error {
	first, bad := -1, 0
	var w [8]byte
	for i := 0; i < len(b); {
		o := off + uint64(i)
		binary.LittleEndian.PutUint64(w[:], word(seed, o/8))
		n := min(8-int(o%8), len(b)-i)
		want := w[o%8:][:n]
		if !bytes.Equal(b[i:i+n], want) {
			for k := range want {
				if b[i+k] != want[k] {
					if first < 0 {
						first = i + k
					}
					bad++
				}
			}
		}
		i += n
	}
	if first < 0 {
		return nil
	}
	return fmt.Errorf("payload %d: byte %d of %d (absolute offset %d) is %#02x, want %#02x; %d bytes differ%s",
		seed, first, len(b), off+uint64(first), b[first], PayloadByte(seed, off+uint64(first)), bad, hint(b, first, seed, off))
}

// hint guesses the origin of the bytes from first on.
func hint(b []byte, first int, seed, off uint64) string {
	rest := b[first:]
	if n := len(bytes.TrimLeft(rest, "\x00")); n == 0 {
		return "; all zero from there"
	}
	if len(rest) < 16 {
		return ""
	}
	probe := rest[:16]
	at := off + uint64(first)
	for d := uint64(1); d <= 8192; d++ {
		if bytes.Equal(probe, Payload(16, seed, at+d)) {
			return fmt.Sprintf("; looks like offset %d (+%d)", at+d, d)
		}
		if d <= at && bytes.Equal(probe, Payload(16, seed, at-d)) {
			return fmt.Sprintf("; looks like offset %d (-%d)", at-d, d)
		}
	}
	return ""
}
