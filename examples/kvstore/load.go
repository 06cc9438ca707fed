package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"time"
)

// load is the work of one client: n operations on random keys, of which this part is
// writes. All values that it reads are checked.
type load struct {
	*client
	number int // among all clients
	keys   int
	rng    *rand.Rand
	seen   []uint64 // versions, by key: none may be older later
	count  counts
}

func newLoad(c *client, number, keys int) *load {
	return &load{
		client: c, number: number, keys: keys,
		rng: rand.New(rand.NewPCG(uint64(number), 0)), seen: make([]uint64, keys),
	}
}

// fill writes each key once, divided among the clients.
func (l *load) fill(ctx context.Context) error {
	for k := l.number; k < l.keys; k += l.readers() {
		if err := l.write(ctx, k, 0); err != nil {
			return err
		}
	}
	return nil
}

// run executes n operations.
func (l *load) run(ctx context.Context, n int, part float64) error {
	for i := range n {
		k := l.rng.IntN(l.keys)
		var err error
		if l.rng.Float64() < part {
			err = l.write(ctx, k, uint64(i))
			l.count[writes]++
		} else {
			err = l.read(ctx, k)
		}
		if err != nil {
			return err
		}
	}
	l.count[again] = l.torn.Load()
	return nil
}

func (l *load) write(ctx context.Context, k int, n uint64) error {
	key := keyOf(k)
	version, err := l.put(ctx, key, valueOf(key, n<<16|uint64(l.number)))
	if err != nil {
		return fmt.Errorf("put %s: %w", key, err)
	}
	return l.see(k, version)
}

func (l *load) read(ctx context.Context, k int) error {
	key := keyOf(k)
	start := time.Now()
	value, version, err := l.get(ctx, key)
	l.count.read(time.Since(start))
	if err == nil {
		err = check(key, value)
	}
	if err != nil {
		return fmt.Errorf("get %s: %w", key, err)
	}
	return l.see(k, version)
}

// see records a version of a key.
func (l *load) see(k int, version uint64) error {
	if version < l.seen[k] {
		return fmt.Errorf("%s: version %d after %d", keyOf(k), version, l.seen[k])
	}
	l.seen[k] = version
	return nil
}

func keyOf(k int) []byte { return fmt.Appendf(nil, "key-%08d", k) }

// valueOf returns a value of 8 to 80 bytes that shows by itself whether it is whole: a
// number, and others that depend on it, the length and the key.
func valueOf(key []byte, n uint64) []byte {
	rng := rand.New(rand.NewPCG(n, hash(key)))
	value := binary.LittleEndian.AppendUint64(nil, n)
	for range rng.IntN(10) {
		value = binary.LittleEndian.AppendUint64(value, rng.Uint64())
	}
	return value
}

// check reports whether a value is one that a client has written for the key.
func check(key, value []byte) error {
	if len(value) >= 8 {
		if want := valueOf(key, binary.LittleEndian.Uint64(value)); string(want) == string(value) {
			return nil
		}
	}
	return fmt.Errorf("value %x was never written", value)
}
