//go:build linux

package main

import (
	"fmt"
	"io"
)

// cpioWriter writes the kernel's initramfs format: "newc" cpio, owner root, no times. The
// kernel reads concatenated archives as one initramfs.
type cpioWriter struct {
	w   io.Writer
	ino uint32
	err error
}

func newCpio(w io.Writer) *cpioWriter { return &cpioWriter{w: w} }

// Mode bits of the entry kinds.
const (
	cpioDir  = 0o040000
	cpioFile = 0o100000
)

func (c *cpioWriter) entry(name string, mode uint32, data []byte) {
	if c.err != nil {
		return
	}
	if uint64(len(data)) > 0xffffffff {
		c.err = fmt.Errorf("cpio %s: %d bytes do not fit the format", name, len(data))
		return
	}
	c.ino++
	nlink := 1
	if mode&cpioDir != 0 {
		nlink = 2
	}
	// magic, inode, mode, uid, gid, links, time, size, device ×2, rdev ×2, name size, checksum
	head := fmt.Sprintf("070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x",
		c.ino, mode, 0, 0, nlink, 0, len(data), 0, 0, 0, 0, len(name)+1, 0)
	head += name + "\x00"
	c.write([]byte(head))
	c.pad(len(head))
	c.write(data)
	c.pad(len(data))
}

func (c *cpioWriter) write(b []byte) {
	if c.err == nil {
		_, c.err = c.w.Write(b)
	}
}

// pad aligns to 4 bytes after n bytes from an aligned offset.
func (c *cpioWriter) pad(n int) { c.write(make([]byte, -n&3)) }

// Dir adds a directory. Parents come before children.
func (c *cpioWriter) Dir(name string) { c.entry(name, cpioDir|0o755, nil) }

// File adds a file with permission bits perm.
func (c *cpioWriter) File(name string, perm uint32, data []byte) {
	c.entry(name, cpioFile|perm, data)
}

// Close writes the trailer and returns the first error.
func (c *cpioWriter) Close() error {
	c.ino = ^uint32(0) // so that the trailer's number is 0
	c.entry("TRAILER!!!", 0, nil)
	return c.err
}
