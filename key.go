package rma

import (
	"context"
	"encoding/base64"
	"fmt"
	"runtime"
	"sync"
	"weak"

	"github.com/seed33544411/rma/mr"
)

// linkNumber is the number of a kind of link in keys: append only.
var linkNumber = map[string]uint8{"shm": 0, "ibv": 1, "tcp": 2, "sim": 3}

// Key names a region of a peer: all that is needed to reach it. It is a value, of a
// fixed size when marshalled, and comparable: a key equals what its bytes or its text are
// parsed to. Equal keys point to one copy of their contents, so that a key, and a
// place in its memory, are as cheap to pass on as a pointer.
type Key struct{ contents *mr.Key }

// keysInUse has the contents of every key in use, for as long as anything refers to them.
var keysInUse = struct {
	sync.Mutex
	byValue map[mr.Key]weak.Pointer[mr.Key]
}{byValue: map[mr.Key]weak.Pointer[mr.Key]{}}

// newKey is the key with these contents.
func newKey(k mr.Key) Key {
	keysInUse.Lock()
	defer keysInUse.Unlock()
	p := keysInUse.byValue[k].Value()
	if p == nil {
		p = new(mr.Key)
		*p = k
		keysInUse.byValue[k] = weak.Make(p)
		runtime.AddCleanup(p, forgetKey, k)
	}
	return Key{p}
}

// forgetKey drops the entry of a key to which nothing refers any more, if no newer one
// has the same contents.
func forgetKey(k mr.Key) {
	keysInUse.Lock()
	defer keysInUse.Unlock()
	if keysInUse.byValue[k].Value() == nil {
		delete(keysInUse.byValue, k)
	}
}

// value returns the contents. Those of the zero Key reach nothing.
func (k Key) value() mr.Key {
	if k.contents == nil {
		return mr.Key{}
	}
	return *k.contents
}

// KeySize is the size of a marshalled Key in bytes; docs/wire.md has the layout.
const KeySize = mr.KeySize

// Len is the size of the region in bytes.
func (k Key) Len() uint64 { return k.value().Len }

// At is the place off bytes into the region.
func (k Key) At(off uint64) Remote { return Remote{key: k, off: off} }

// Remote is a place in a peer's memory.
type Remote struct {
	key Key
	off uint64
}

// Append appends the marshalled key to b.
func (k Key) Append(b []byte) []byte {
	v := k.value()
	return v.Append(b)
}

// MarshalBinary implements encoding.BinaryMarshaler: KeySize bytes.
func (k Key) MarshalBinary() ([]byte, error) { return k.Append(nil), nil }

// UnmarshalBinary implements encoding.BinaryUnmarshaler; see ParseKey.
func (k *Key) UnmarshalBinary(b []byte) error {
	got, err := ParseKey(b)
	if err == nil {
		*k = got
	}
	return err
}

// MarshalText implements encoding.TextMarshaler: unpadded URL-safe base64, for
// JSON, command lines and names.
func (k Key) MarshalText() ([]byte, error) {
	return base64.RawURLEncoding.AppendEncode(nil, k.Append(nil)), nil
}

// UnmarshalText implements encoding.TextUnmarshaler. Errors wrap ErrBadKey.
func (k *Key) UnmarshalText(text []byte) error {
	b, err := base64.RawURLEncoding.AppendDecode(nil, text)
	if err != nil {
		return fmt.Errorf("rma: %w: %w", ErrBadKey, err)
	}
	return k.UnmarshalBinary(b)
}

// String is the text form.
func (k Key) String() string { return base64.RawURLEncoding.EncodeToString(k.Append(nil)) }

// ParseKey reads a key that Append made. It is a peer's claim: only the target
// decides whether it is valid. Errors wrap ErrBadKey.
func ParseKey(b []byte) (Key, error) {
	k, rest, err := mr.ParseKey(b)
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("%w: %d bytes, want %d", ErrBadKey, len(b), KeySize)
	}
	if err != nil {
		return Key{}, fmt.Errorf("rma: %w", err)
	}
	return newKey(k), nil
}

// keyOf reads the key that a rank gave.
func keyOf(rank int, b []byte) (Key, error) {
	k, err := ParseKey(b)
	if err != nil {
		return Key{}, &PeerError{Rank: rank, Op: "exchange keys", Err: err}
	}
	v := k.value()
	v.Owner = owner(rank)
	return newKey(v), nil
}

// owner is what keys of the rank's memory say.
func owner(rank int) uint16 { return uint16(rank + 1) }

// AllGatherKeys exchanges the keys of one region of each rank and returns them
// by rank. All ranks must call it, in the same order if there are several. It succeeds on
// all ranks or on none, as Engine.Window describes.
func AllGatherKeys(ctx context.Context, e *Engine, mem *Region) ([]Key, error) {
	_, all, err := e.together(ctx, &e.gathers, "keys", mem, func() ([]byte, *Region) {
		k := mem.Key()
		return k.Append(nil), nil
	})
	keys := make([]Key, len(all))
	for r := 0; r < len(all) && err == nil; r++ {
		keys[r], err = keyOf(r, all[r])
	}
	if err != nil {
		return nil, fmt.Errorf("rma: %w", err)
	}
	return keys, nil
}
