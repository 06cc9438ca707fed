package main

import (
	"bytes"
	"errors"
)

// Errors of the store.
var (
	errNotFound = errors.New("no such key")
	errTooLong  = errors.New("key and value are longer than a slot, or the key is empty")
	errFull     = errors.New("no slot for the key")
	errTorn     = errors.New("slot stays torn")
	errProtocol = errors.New("not a message of this program")
)

// shard is a part of the table for its owner, the only rank that writes there. It belongs to the handler of requests, one call at a time.
type shard struct {
	layout
	mem     []byte // the window
	version uint64
}

// put stores a value and returns its version.
func (s *shard) put(home int, key, value []byte) (uint64, error) {
	if len(key) == 0 || len(key)+len(value) > maxRoom {
		return 0, errTooLong
	}
	slot, room, err := s.find(home, key)
	switch {
	case err != nil:
		return 0, err
	case slot == nil && room == nil:
		return 0, errFull
	case slot == nil:
		slot = room
	}
	s.version++
	entry{version: s.version, live: true, key: key, value: value}.encode(slot)
	return s.version, nil
}

// remove deletes a key. Its slot stays in use, so that readers continue with the slots
// behind it, until another key takes it.
func (s *shard) remove(home int, key []byte) (uint64, error) {
	slot, _, err := s.find(home, key)
	switch {
	case err != nil:
		return 0, err
	case slot == nil:
		return 0, errNotFound
	}
	s.version++
	entry{version: s.version, key: key}.encode(slot)
	return s.version, nil
}

// find returns the slot of the key, nil if it has none, and the first slot that it could
// have. Keys never move: a reader that searches the same buckets meanwhile finds it.
func (s *shard) find(home int, key []byte) (slot, room []byte, err error) {
	for probe := range s.probes() {
		at := s.bucket(home, probe)
		for i := range slots {
			here := s.mem[at+i*slotSize:][:slotSize]
			e, c := decode(here)
			switch {
			case c == torn: // no write is in progress: another rank has written
				return nil, nil, errTorn
			case c == whole && e.live && bytes.Equal(e.key, key):
				return here, room, nil
			case (c == free || !e.live) && room == nil:
				room = here
			}
			if c == free {
				return nil, room, nil
			}
		}
	}
	return nil, room, nil
}
