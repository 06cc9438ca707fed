package softlink

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"sync"

	"github.com/seed33544411/rma/fabric"
)

// ErrKeyTaken says that another region has one of the keys.
var ErrKeyTaken = errors.New("another region has this key")

// Names maps keys that another link has given to regions, of which it has two: a local one, and one for
// peers. Its methods may be called from any goroutine.
type Names struct {
	mu            sync.RWMutex
	local, remote map[uint32]*Entry
}

// NewNames returns an empty table.
func NewNames() *Names {
	return &Names{local: map[uint32]*Entry{}, remote: map[uint32]*Entry{}}
}

// Add registers [base, base+n) with these keys, of which remote is ignored without rights of peers: a device
// may have one for all such regions. It fails with ErrKeyTaken if a key is in use.
func (x *Names) Add(base, n uint64, access fabric.Access, local, remote uint32) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	peers := access&^fabric.AccessLocalWrite != 0
	if x.local[local] != nil || peers && x.remote[remote] != nil {
		return ErrKeyTaken
	}
	e := &Entry{Base: base, Len: n, Access: access, Key: remote}
	if x.local[local] = e; peers {
		x.remote[remote] = e
	}
	return nil
}

// AddNew registers [base, base+n) with a random key for both.
func (x *Names) AddNew(base, n uint64, access fabric.Access) (key uint32) {
	var r [4]byte
	for {
		_, _ = rand.Read(r[:]) // never fails
		if key = binary.LittleEndian.Uint32(r[:]); key != 0 && x.Add(base, n, access, key, key) == nil {
			return key
		}
	}
}

// Remove withdraws the keys of a region.
func (x *Names) Remove(local, remote uint32) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if e := x.local[local]; x.remote[remote] == e {
		delete(x.remote, remote)
	}
	delete(x.local, local)
}

func (x *Names) allows(of map[uint32]*Entry, key uint32, addr, n uint64, need fabric.Access) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	e := of[key]
	return e != nil && e.Access&need == need && e.contains(addr, n)
}
