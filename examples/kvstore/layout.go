package main

import (
	"fmt"
	"math/bits"

	"github.com/seed33544411/rma"
)

// layout defines which ranks hold a shard of the table, which read and write it, and the
// offsets in the window. The first ranks hold shards; a single rank does both.
type layout struct {
	servers, size int
	buckets       int // of a shard
	clients       int // goroutines of each rank that reads
}

func (l layout) check() error {
	switch {
	case l.servers < 1 || l.servers > max(1, l.size-1):
		return fmt.Errorf("want between 1 server and %d, for %d ranks, not %d", max(1, l.size-1), l.size, l.servers)
	case l.clients < 1 || l.clients > maxClients:
		return fmt.Errorf("want 1 to %d clients per rank, not %d", maxClients, l.clients)
	case l.buckets < 1:
		return fmt.Errorf("want at least one bucket per shard")
	}
	return nil
}

func (l layout) serves(rank int) bool { return rank < l.servers }
func (l layout) reads(rank int) bool  { return rank >= l.servers || l.size == 1 }

// readers returns the number of all clients.
func (l layout) readers() int { return max(1, l.size-l.servers) * l.clients }

// A window begins with words that others add to; on rank 0 these include the
// counts of all clients. The shard follows, if the rank has one.
const (
	doneAt   = 0  // clients that have finished
	countsAt = 64 // counts, as uint64
	tableAt  = (countsAt + 8*counters + bucketSize - 1) / bucketSize * bucketSize
)

func (l layout) bytes(rank int) int {
	if l.serves(rank) {
		return tableAt + l.buckets*bucketSize
	}
	return tableAt
}

// A bucket is what one read fetches: the slots where a key may be. If the key is in none
// of them, and none is free, the next bucket may have it.
const (
	slots      = 4
	bucketSize = slots * slotSize
	maxProbes  = 8 // buckets; beyond, a shard is full. At 3/4 of all slots taken, 2 are rare
)

func (l layout) probes() int { return min(maxProbes, l.buckets) }

// home returns the rank of a key, and its first bucket there.
func (l layout) home(key []byte) (rank, bucket int) {
	hi, lo := bits.Mul64(hash(key), uint64(l.servers))
	b, _ := bits.Mul64(lo, uint64(l.buckets))
	return int(hi), int(b)
}

// bucket returns the offset of the probe-th bucket from home in the window.
func (l layout) bucket(home, probe int) int {
	return tableAt + (home+probe)%l.buckets*bucketSize
}

func (l layout) remote(win *rma.Window, rank, home, probe int) rma.Remote {
	return win.At(rank, l.bucket(home, probe))
}

// hash is FNV-1a of 64 bits, with the finalizer of MurmurHash3, because upper bits
// are used here, which FNV does not mix well for short keys.
func hash(key []byte) uint64 {
	h := uint64(0xcbf29ce484222325)
	for _, c := range key {
		h = (h ^ uint64(c)) * 0x100000001b3
	}
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
