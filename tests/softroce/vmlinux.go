//go:build linux

package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os/exec"
)

// Offsets in the boot header of an x86 bzImage (kernel documentation
// x86/boot, protocol 2.08 and later).
const (
	hdrSetupSects    = 0x1f1
	hdrMagic         = 0x202
	hdrVersion       = 0x206
	hdrPayloadOffset = 0x248
	hdrPayloadLength = 0x24c
)

// payload returns the compressed kernel inside a bzImage.
func payload(img []byte) ([]byte, error) {
	if len(img) < hdrPayloadLength+4 || string(img[hdrMagic:hdrMagic+4]) != "HdrS" {
		return nil, errors.New("vmlinux: not a bzImage (no HdrS)")
	}
	if v := binary.LittleEndian.Uint16(img[hdrVersion:]); v < 0x208 {
		return nil, fmt.Errorf("vmlinux: boot protocol %#x is too old", v)
	}
	sects := int(img[hdrSetupSects])
	if sects == 0 {
		sects = 4
	}
	off := uint64(sects+1)*512 + uint64(binary.LittleEndian.Uint32(img[hdrPayloadOffset:]))
	n := uint64(binary.LittleEndian.Uint32(img[hdrPayloadLength:]))
	if n < 8 || off+n > uint64(len(img)) {
		return nil, fmt.Errorf("vmlinux: payload [%d, +%d) is outside the image of %d bytes", off, n, len(img))
	}
	return img[off : off+n], nil
}

// extractVmlinux returns the ELF kernel inside a bzImage. Decompression on the host instead
// of in the emulated machine saves seconds a boot.
func extractVmlinux(ctx context.Context, img []byte) ([]byte, error) {
	p, err := payload(img)
	if err != nil {
		return nil, err
	}
	var elf []byte
	switch {
	case bytes.HasPrefix(p, []byte("\xfd7zXZ\x00")):
		elf, err = pipe(ctx, p[:len(p)-4], "xz", "-dc", "--single-stream") // the last 4 bytes are the size, not xz
	case bytes.HasPrefix(p, []byte("\x28\xb5\x2f\xfd")):
		elf, err = pipe(ctx, p[:len(p)-4], "zstd", "-dc")
	case bytes.HasPrefix(p, []byte("\x1f\x8b")):
		var z *gzip.Reader
		if z, err = gzip.NewReader(bytes.NewReader(p)); err == nil {
			z.Multistream(false)
			elf, err = io.ReadAll(z)
		}
	case bytes.HasPrefix(p, []byte("\x7fELF")):
		elf = p
	default:
		return nil, fmt.Errorf("vmlinux: payload is compressed in a way not known here (starts % x)", p[:4])
	}
	if err != nil {
		return nil, fmt.Errorf("vmlinux: %w", err)
	}
	return elf, checkELF(elf)
}

// checkELF refuses a truncated kernel: the section table is at the end of the file.
func checkELF(b []byte) error {
	if len(b) < 64 || string(b[:4]) != "\x7fELF" || b[4] != 2 {
		return errors.New("vmlinux: payload is not a 64-bit ELF file")
	}
	off := binary.LittleEndian.Uint64(b[40:])
	size := uint64(binary.LittleEndian.Uint16(b[58:])) * uint64(binary.LittleEndian.Uint16(b[60:]))
	if off > uint64(len(b)) || size > uint64(len(b))-off {
		return fmt.Errorf("vmlinux: truncated: section table ends at %d of %d bytes", off+size, len(b))
	}
	return nil
}

// pipe runs a filter over in.
func pipe(ctx context.Context, in []byte, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin = bytes.NewReader(in)
	var out, errb bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errb
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w: %s", name, err, bytes.TrimSpace(errb.Bytes()))
	}
	return out.Bytes(), nil
}
