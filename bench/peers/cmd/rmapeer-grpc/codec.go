package main

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/mem"
)

// errMessage is a message that is not what the other side should have sent.
var errMessage = errors.New("unexpected message")

// raw is a codec that passes bytes on: a message is a *[]byte. What is sent is
// referred to, not copied; what arrives is copied into the slice that waits for it,
// as any decoder would, and its length becomes that of the message.
type raw struct{}

func (raw) Name() string { return "raw" }

func (raw) Marshal(v any) (mem.BufferSlice, error) {
	b, ok := v.(*[]byte)
	if !ok {
		return nil, fmt.Errorf("%w: %T", errMessage, v)
	}
	return mem.BufferSlice{mem.SliceBuffer(*b)}, nil
}

func (raw) Unmarshal(data mem.BufferSlice, v any) error {
	b, ok := v.(*[]byte)
	n := data.Len()
	if !ok || n > cap(*b) {
		return fmt.Errorf("%w: %d bytes for %T", errMessage, n, v)
	}
	*b = (*b)[:n]
	data.CopyTo(*b)
	return nil
}
