package eager

import (
	"errors"
	"fmt"
	"slices"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/offheap"
)

// SetOptions bounds the channels of one engine. The zero value is usable.
type SetOptions struct {
	// Channel is used for every channel; IDTag, Imm and Depth included.
	Channel Options

	// MaxChannels bounds the number of channels. Zero means 64: every poll for messages
	// reads one line of each ring, and 64 cache misses cost a few microseconds. Negative
	// means none.
	MaxChannels int

	// MaxMemory bounds rings and mirrors, in bytes. Zero means 64 MiB.
	MaxMemory int

	// After is the number of messages to a peer after which it gets a channel. Zero means
	// that the first one suffices.
	After int
}

// Set holds the channels of one link. They are created for peers with enough messages, and
// bounded in number and memory. A Set belongs to the goroutine that owns the link's Poll.
type Set struct {
	link   fabric.Link
	o      SetOptions
	byPeer []setEntry
	list   []Member
}

// Member is one channel of a Set.
type Member struct {
	Peer    uint32
	Channel *Channel
}

type setEntry struct {
	ch    *Channel
	count int // messages counted by Wants
}

// MaxPeers bounds the peer numbers of a Set.
const MaxPeers = 1 << 20

// SetStats counts the uses of a Set.
type SetStats struct {
	Channels    int
	MaxChannels int
	Memory      int // bytes of rings and mirrors
	MaxMemory   int
}

// NewSet returns an empty set for link.
func NewSet(link fabric.Link, o SetOptions) (*Set, error) {
	if _, _, err := o.Channel.effective(link.Caps()); err != nil {
		return nil, fmt.Errorf("new eager set: %w", err)
	}
	switch {
	case o.MaxChannels == 0:
		o.MaxChannels = 64
	case o.MaxChannels < 0:
		o.MaxChannels = 0
	}
	if o.MaxMemory == 0 {
		o.MaxMemory = 64 << 20
	}
	if o.MaxMemory < 0 || o.After < 0 {
		return nil, fmt.Errorf("new eager set: %w: memory %d, after %d", ErrOptions, o.MaxMemory, o.After)
	}
	return &Set{link: link, o: o}, nil
}

func (s *Set) entry(peer uint32) *setEntry {
	if peer >= MaxPeers {
		return nil
	}
	if int(peer) >= len(s.byPeer) {
		s.byPeer = append(s.byPeer, make([]setEntry, int(peer)+1-len(s.byPeer))...)
	}
	return &s.byPeer[peer]
}

// Get returns the peer's channel, or nil if it has none.
//
// Hot path.
func (s *Set) Get(peer uint32) *Channel {
	if peer < uint32(len(s.byPeer)) { // an int may have 32 bits
		return s.byPeer[peer].ch
	}
	return nil
}

// Wants counts a message to or from peer, which has no channel yet. It reports whether the
// peer should get one and there is room: the caller then calls Open.
func (s *Set) Wants(peer uint32) bool {
	e := s.entry(peer)
	if e == nil || e.ch != nil {
		return false
	}
	e.count++
	return e.count > s.o.After && s.room(s.ringBytes()) == nil
}

// ringBytes returns the size of a channel's own ring.
func (s *Set) ringBytes() int {
	o, _, _ := s.o.Channel.effective(s.link.Caps())
	return offheap.RoundUp(ringStart + o.Blocks*o.BlockSize)
}

func (s *Set) room(extra int) error {
	st := s.Stats()
	if st.Channels >= st.MaxChannels {
		return fmt.Errorf("%w: %d channels", ErrLimit, st.Channels)
	}
	return s.roomFor(extra)
}

func (s *Set) roomFor(extra int) error {
	if st := s.Stats(); extra > st.MaxMemory-st.Memory {
		return fmt.Errorf("%w: %d bytes in use, %d more asked for, limit %d", ErrLimit, st.Memory, extra, st.MaxMemory)
	}
	return nil
}

// Open creates the channel to peer over ep. ErrLimit means that the set is full. Both sides
// open, exchange Setup and Connect; a side that is full notifies the other, which closes
// its half. Setup path.
func (s *Set) Open(peer uint32, ep fabric.Endpoint) (*Channel, error) {
	e := s.entry(peer)
	if e == nil {
		return nil, fmt.Errorf("open eager channel: %w: peer %d, at most %d", ErrOptions, peer, MaxPeers)
	}
	if e.ch != nil {
		return nil, fmt.Errorf("open eager channel to peer %d: %w", peer, ErrConnected)
	}
	if err := s.room(s.ringBytes()); err != nil {
		return nil, fmt.Errorf("open eager channel to peer %d: %w", peer, err)
	}
	ch, err := Open(s.link, ep, s.o.Channel)
	if err != nil {
		return nil, err
	}
	e.ch, e.count = ch, 0
	s.list = append(s.list, Member{peer, ch})
	return ch, nil
}

// Connect is Channel.Connect within the set's memory. Setup path.
func (s *Set) Connect(peer uint32, su Setup) error {
	ch := s.Get(peer)
	if ch == nil {
		return fmt.Errorf("connect eager channel to peer %d: %w", peer, ErrNotConnected)
	}
	if n := uint64(su.Geometry.Blocks) * (uint64(su.BlockSize) + 8); n < maxRingBytes*2 {
		if err := s.roomFor(offheap.RoundUp(int(n) + 8)); err != nil {
			return fmt.Errorf("connect eager channel to peer %d: %w", peer, err)
		}
	}
	return ch.Connect(su)
}

// Members returns the channels in no particular order, for polling. The slice belongs to
// the set and becomes invalid with Open and Close.
func (s *Set) Members() []Member { return s.list }

// Close closes and removes the peer's channel, if there is one. Its endpoint must be closed
// before. After an error the closed channel stays in the set, with the memory that it has not
// released: call Close again. Setup path.
func (s *Set) Close(peer uint32) error {
	ch := s.Get(peer)
	if ch == nil {
		return nil
	}
	if err := ch.Close(); err != nil {
		return err
	}
	s.byPeer[peer] = setEntry{}
	for i := range s.list {
		if s.list[i].Channel == ch {
			last := len(s.list) - 1
			s.list[i] = s.list[last]
			s.list[last] = Member{}
			s.list = s.list[:last]
			break
		}
	}
	return nil
}

// CloseAll is Close for all channels.
func (s *Set) CloseAll() error {
	var err error
	for _, m := range slices.Clone(s.list) {
		err = errors.Join(err, s.Close(m.Peer))
	}
	return err
}

// Stats returns the counters.
func (s *Set) Stats() SetStats {
	st := SetStats{Channels: len(s.list), MaxChannels: s.o.MaxChannels, MaxMemory: s.o.MaxMemory}
	for i := range s.list {
		st.Memory += s.list[i].Channel.memory
	}
	return st
}
