package bench

import "encoding/binary"

// word is the eight pattern bytes at position 8·i of the message seed. A finaliser of
// the splitmix family makes bytes detectable that are shifted, repeated or left over from
// another message.
func word(seed, i uint64) uint64 {
	x := (i+1)*0x9e3779b97f4a7c15 ^ seed*0xd1342543de82ef95
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	return x * 0x94d049bb133111eb
}

// fill writes the pattern of the message seed into b.
func fill(b []byte, seed uint64) {
	i := uint64(0)
	for ; len(b) >= 8; b = b[8:] {
		binary.LittleEndian.PutUint64(b, word(seed, i))
		i++
	}
	if len(b) > 0 {
		var last [8]byte
		binary.LittleEndian.PutUint64(last[:], word(seed, i))
		copy(b, last[:])
	}
}

// check returns the position of the first byte of b that differs from the pattern of
// the message seed, or -1.
func check(b []byte, seed uint64) int {
	at := 0
	for i := uint64(0); len(b)-at >= 8; i++ {
		if binary.LittleEndian.Uint64(b[at:]) != word(seed, i) {
			break
		}
		at += 8
	}
	w := word(seed, uint64(at/8))
	for k := 0; at < len(b); k, at = k+1, at+1 {
		if b[at] != byte(w>>(8*k)) {
			return at
		}
	}
	return -1
}
