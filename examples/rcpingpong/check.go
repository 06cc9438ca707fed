package main

import "fmt"

// What ibv_rc_pingpong calls validated data (-c): the first byte of every page
// is zero; all others keep the byte that its buffers are filled with.
const (
	pageSize = 4096
	filler   = 0x7b
)

// pattern is the byte at offset off of message i as this program's client sends
// it: zero where the other implementation looks, elsewhere a function of
// position and message, so that a piece that went astray or came twice shows;
// never the filler, by which the server tells the two clients apart.
func pattern(i, off int) byte {
	if off%pageSize == 0 {
		return 0
	}
	x := uint32(off)*2654435761 + uint32(i)*40503
	if b := byte(x>>24) | 1; b != filler {
		return b
	}
	return filler + 2
}

func fill(buf []byte, i int) {
	for off := range buf {
		buf[off] = pattern(i, off)
	}
}

// checkEcho verifies that the server sent message i back unchanged.
func checkEcho(buf []byte, i int) error {
	for off, b := range buf {
		if want := pattern(i, off); b != want {
			return fmt.Errorf("message %d: byte %d is %#02x, want %#02x", i, off, b, want)
		}
	}
	return nil
}

// checkClient verifies message i of a client, this program's or the other's.
func checkClient(buf []byte, i int) error {
	ours := len(buf) > 1 && buf[1] != filler
	for off, b := range buf {
		want := pattern(i, off)
		if !ours && off%pageSize != 0 {
			want = filler
		}
		if b != want {
			return fmt.Errorf("message %d: byte %d is %#02x, want %#02x", i, off, b, want)
		}
	}
	return nil
}
