package mr

import (
	"errors"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/testutil"
)

func newCache(tb testing.TB, d *Domain, o CacheOptions) *Cache {
	c, err := NewCache(d, o)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, c.Close()) })
	return c
}

// check compares the cache with what its definition says of it.
func (c *Cache) check(tb testing.TB) {
	all := map[*entry]bool{}
	var bytes, inUse int64
	leases, idle, busy := 0, 0, 0
	count := func(e *entry) {
		require.False(tb, all[e])
		all[e] = true
		bytes += e.len()
		leases += e.refs
		if e.refs > 0 {
			inUse += e.len()
			busy++
		}
	}
	for i, s := range c.index {
		count(s.e)
		require.Equal(tb, s.base, s.e.base)
		require.True(tb, s.e.indexed)
		require.Less(tb, s.e.reg.state.Load(), int64(closing))
		if s.e.refs == 0 {
			idle++
		}
		if i > 0 {
			require.Less(tb, c.index[i-1].base, s.base)
			require.Less(tb, c.index[i-1].e.end, s.e.end, "an entry contains another")
		}
	}
	for _, e := range c.gone {
		require.False(tb, e.indexed)
		count(e)
	}
	for _, e := range c.recent {
		require.True(tb, e == nil || e.indexed)
	}
	for e := c.idle.root.next; e != &c.idle.root; e = e.next {
		require.True(tb, e.indexed && e.refs == 0)
		idle--
	}
	require.Zero(tb, idle)
	require.Equal(tb, [3]int{len(all), leases, busy}, [3]int{c.stats.Entries, c.stats.Leases, c.busy})
	require.Equal(tb, [2]int64{bytes, inUse}, [2]int64{c.stats.Bytes, c.inUse})
	require.LessOrEqual(tb, bytes, c.o.Limit)
	require.LessOrEqual(tb, len(all), c.o.Entries)
	require.Equal(tb, len(all), c.dom.Live())
}

// out is a lease that the model knows of.
type out struct {
	Lease
	mem    []byte
	access fabric.Access
}

// Random requests, releases and invalidations against a model: what is leased is
// registered with the range and rights asked for, hits are those of a linear
// search, limits hold, misuse is told, and at the end no region is left.
func TestCacheAgainstModel(t *testing.T) { eachLink(t, cacheModel) }

func cacheModel(t *testing.T, d *Domain, rails []*rail) {
	for seed := range uint64(3) {
		rng := rand.New(rand.NewPCG(seed, 2))
		bufs := [][]byte{make([]byte, 1<<16), testutil.Scratch(t, 1<<16), make([]byte, 3000)}
		c := newCache(t, d, CacheOptions{Limit: 150 << 10, Entries: 12})
		var outs []out
		var old []Lease
		release := func(i int) {
			require.NoError(t, c.Release(outs[i].Lease))
			old = append(old, outs[i].Lease)
			outs = slices.Delete(outs, i, i+1)
		}
		var hits, limits, refusals, moves int
		for step := range 1200 {
			b := bufs[rng.IntN(len(bufs))]
			off := rng.IntN(len(b))
			n := 1 + rng.IntN(len(b)-off)
			if rng.IntN(3) > 0 {
				n = 1 + n/32
			}
			mem := b[off : off+n]
			lo, hi := fabric.Addr(mem), fabric.Addr(mem)+uint64(n)
			switch k := rng.IntN(20); {
			case k < 10:
				access := fabric.Access(rng.IntN(int(fabric.AccessAll) + 1))
				if rng.IntN(2) == 0 {
					access = fabric.AccessRemoteRead
				}
				inside, enough, poor := false, false, false
				for _, s := range c.index {
					if s.e.base <= lo && hi <= s.e.end {
						inside = true
						enough = enough || s.e.access&access == access
						poor = poor || s.e.access&access != access
					}
				}
				covered := covers(c, mem, access)
				before := c.stats
				l, err := c.Acquire(mem, access)
				if err != nil {
					require.ErrorIs(t, err, ErrLimit)
					require.False(t, covered)
					limits++
					if len(outs) > 0 {
						release(rng.IntN(len(outs)))
					}
					break
				}
				hit := c.stats.Hits > before.Hits
				require.Equal(t, covered, hit)
				if !inside || !enough {
					require.False(t, hit)
				} else if !poor {
					require.True(t, hit)
				}
				if hit {
					hits++
				}
				outs = append(outs, out{l, mem, access})
			case k < 17 && len(outs) > 0:
				release(rng.IntN(len(outs)))
			case k < 18:
				used := false
				for _, o := range outs {
					e := c.leases.slots[o.slot].e
					used = used || e.base < hi && lo < e.end
				}
				err := c.Invalidate(lo, hi-lo)
				if used {
					require.ErrorIs(t, err, ErrInUse)
					refusals++
					break
				}
				require.NoError(t, err)
				for _, s := range c.index {
					require.False(t, s.e.base < hi && lo < s.e.end)
				}
			case k < 19 && len(old) > 0:
				l := old[rng.IntN(len(old))]
				require.False(t, l.Live())
				require.ErrorIs(t, c.Release(l), ErrReleased)
				_, err := l.SGE(0, mem)
				require.ErrorIs(t, err, ErrReleased)
				_, err = l.RemoteKey(mem)
				require.ErrorIs(t, err, ErrReleased)
			case len(outs) > 0 && step%8 == 0:
				o := outs[rng.IntN(len(outs))]
				moves++
				move(t, rng, o, bufs, rails)
			}
			if step%4 != 0 {
				continue
			}
			for _, o := range outs {
				require.True(t, o.Live())
				require.Equal(t, o.access, o.reg.key.Rights&o.access)
				s, err := o.SGE(0, o.mem)
				require.NoError(t, err)
				require.Equal(t, fabric.NewSGE(o.mem, o.reg.LKey(0)), s)
			}
			c.check(t)
		}
		require.ErrorIs(t, c.Close(), ErrInUse)
		_, err := c.Acquire(bufs[0], 0)
		require.ErrorIs(t, err, ErrClosed)
		for len(outs) > 0 {
			require.ErrorIs(t, c.Close(), ErrInUse)
			release(0)
		}
		require.NoError(t, c.Close())
		require.Zero(t, d.Live())
		for _, n := range []int{hits, limits, refusals, moves} {
			require.Positive(t, n, "%d hits, %d times the limit, %d invalidations refused, %d moves", hits, limits, refusals, moves)
		}
	}
}

// move lets a peer write what was leased, if it may, and compares all memory
// with what it must be then.
func move(t *testing.T, rng *rand.Rand, o out, bufs [][]byte, rails []*rail) {
	i := rng.IntN(len(rails))
	x := rails[i]
	if x.local == nil {
		x.connect(t)
	}
	k, err := o.RemoteKey(o.mem)
	require.NoError(t, err)
	require.Equal(t, [2]uint64{fabric.Addr(o.mem), uint64(len(o.mem))}, [2]uint64{k.Addr, k.Len})
	rk := on(&k, uint8(i+1))
	if !(o.access&fabric.AccessRemoteWrite != 0 && o.access&fabric.AccessLocalWrite != 0) {
		if o.access&fabric.AccessRemoteRead != 0 {
			require.NoError(t, x.access(t, fabric.OpRead, rk, k.Addr, len(o.mem)))
			require.Equal(t, o.mem, x.local.Bytes()[:len(o.mem)])
		}
		return
	}
	var want [][]byte
	for _, b := range bufs {
		want = append(want, slices.Clone(b))
	}
	src := x.local.Bytes()[:len(o.mem)]
	testutil.Fill(src, rng.Uint64(), 0)
	require.NoError(t, x.access(t, fabric.OpWrite, rk, k.Addr, len(o.mem)))
	for j, b := range bufs {
		if off := fabric.Addr(o.mem) - fabric.Addr(b); off < uint64(len(b)) {
			copy(want[j][off:], src)
		}
		require.Equal(t, want[j], b)
	}
}

func TestCachePolicy(t *testing.T) {
	d, _ := open(t, "sim")
	c := newCache(t, d, CacheOptions{Limit: 1000, Entries: 4})
	b := testutil.Scratch(t, 4096)
	const rd, wr = fabric.AccessRemoteRead, fabric.AccessRemoteWrite
	get := func(lo, hi int, a fabric.Access) Lease {
		t.Helper()
		l, err := c.Acquire(b[lo:hi], a)
		require.NoError(t, err)
		c.check(t)
		return l
	}
	use := func(lo, hi int, a fabric.Access) { t.Helper(); require.NoError(t, c.Release(get(lo, hi, a))) }
	ranges := func() (r [][2]int) {
		for _, s := range c.index {
			r = append(r, [2]int{int(s.base - fabric.Addr(b)), int(s.e.end - fabric.Addr(b))})
		}
		return r
	}
	use(0, 100, rd)
	use(50, 150, rd)
	require.Equal(t, [][2]int{{0, 100}, {50, 150}}, ranges(), "what overlaps in part stands beside it")
	use(60, 70, rd)
	use(0, 100, rd)
	require.EqualValues(t, 2, c.Stats().Hits)
	use(60, 70, wr)
	require.Equal(t, 3, int(c.Stats().Misses))
	use(0, 200, rd)
	require.Equal(t, [][2]int{{0, 200}}, ranges(), "what lies inside retires")
	use(0, 200, rd|wr)
	require.EqualValues(t, 3, c.Stats().Hits, "rights passed on")

	// The least recently used goes first; entries in use never.
	use(300, 400, rd)
	use(400, 500, rd)
	held := get(500, 600, rd)
	use(0, 10, rd)
	use(700, 800, rd) // a fifth entry
	require.Equal(t, [][2]int{{0, 200}, {400, 500}, {500, 600}, {700, 800}}, ranges())
	use(1000, 1801, rd) // bytes: all idle ones must go
	require.Equal(t, [][2]int{{500, 600}, {1000, 1801}}, ranges())
	_, err := c.Acquire(b[2000:2901], rd)
	require.ErrorIs(t, err, ErrLimit)
	require.Equal(t, [][2]int{{500, 600}, {1000, 1801}}, ranges(), "nothing evicted in vain")
	_, err = c.Acquire(b[:1001], rd)
	require.ErrorIs(t, err, ErrLimit)
	_, err = c.Acquire(nil, rd)
	require.ErrorIs(t, err, ErrSize)

	// A held entry that retires goes with its last lease.
	around := get(450, 650, rd)
	require.Equal(t, 1, len(c.gone))
	require.ErrorIs(t, c.Invalidate(fabric.Addr(b)+599, 1), ErrInUse)
	require.NoError(t, c.Invalidate(fabric.Addr(b)+650, 100))
	require.True(t, held.Live())
	require.NoError(t, c.Release(around))
	require.ErrorIs(t, c.Invalidate(fabric.Addr(b)+599, 1), ErrInUse, "only the retired entry is in use")
	require.NoError(t, c.Release(held))
	require.Empty(t, c.gone)
	require.NoError(t, c.Invalidate(fabric.Addr(b)+599, 1))
	require.NoError(t, c.Invalidate(0, math.MaxUint64))
	require.NoError(t, c.Invalidate(5, 0))
	require.ErrorIs(t, c.Invalidate(5, math.MaxUint64), ErrSize)
	require.Zero(t, c.Stats().Entries)
	require.Zero(t, d.Live())

	other := newCache(t, d, CacheOptions{})
	l, err := other.Acquire(b, rd)
	require.NoError(t, err)
	require.ErrorIs(t, c.Release(l), ErrReleased)
	require.ErrorIs(t, c.Release(Lease{}), ErrReleased)
	require.False(t, Lease{}.Live())
	_, err = l.SGE(0, b[:0])
	require.ErrorIs(t, err, ErrBounds)
	_, err = l.SGE(0, make([]byte, 8))
	require.ErrorIs(t, err, ErrBounds)
	_, err = l.SGE(1, b)
	require.ErrorIs(t, err, ErrNoRail)
	_, err = l.RemoteKey(make([]byte, 8))
	require.ErrorIs(t, err, ErrBounds)
	require.NoError(t, other.Release(l))
	for _, o := range []CacheOptions{{Limit: -1}, {Entries: -1}, {Entries: MaxRegistrations + 1}} {
		_, err := NewCache(d, o)
		require.ErrorIs(t, err, ErrSize)
	}
}

// A lease ends once, even if its slot and its entry have other users.
func TestReleaseTwiceWithOtherUsers(t *testing.T) {
	d, _ := open(t, "sim")
	c := newCache(t, d, CacheOptions{})
	b := testutil.Scratch(t, 4096)
	first, err := c.Acquire(b, 0)
	require.NoError(t, err)
	require.NoError(t, c.Release(first))
	second, err := c.Acquire(b, 0)
	require.NoError(t, err)
	require.Equal(t, first.slot, second.slot, "the slot is not used again: the test tests nothing")
	require.ErrorIs(t, c.Release(first), ErrReleased)
	require.True(t, second.Live())
	require.NoError(t, c.Release(second))
}

// What a peer's descriptor holds is not invalidated, and counts until released.
func TestInvalidateWhileAPeerHolds(t *testing.T) {
	d, _ := open(t, "tcp")
	c := newCache(t, d, CacheOptions{Limit: 4096})
	b := testutil.Scratch(t, 4096)
	l, err := c.Acquire(b, fabric.AccessRemoteRead)
	require.NoError(t, err)
	k, err := l.RemoteKey(b)
	require.NoError(t, err)
	require.NoError(t, c.Release(l))
	_, held, err := d.Resolve(k.Ref, k.Addr, k.Len, fabric.AccessRemoteRead)
	require.NoError(t, err)
	require.ErrorIs(t, c.Invalidate(fabric.Addr(b), 1), ErrInUse)
	require.Equal(t, 1, len(c.index), "nothing changed")
	other := testutil.Scratch(t, 4096)
	_, err = c.Acquire(other, 0)
	require.ErrorIs(t, err, ErrLimit, "the bytes are not free yet")
	require.ErrorIs(t, c.Invalidate(fabric.Addr(b), 1), ErrInUse)
	require.NoError(t, held.Release())
	require.NoError(t, c.Invalidate(fabric.Addr(b), 1))
	l, err = c.Acquire(other, 0)
	require.NoError(t, err)
	require.NoError(t, c.Release(l))
}

// A Go object stays where it is, and alive, while an entry covers it.
func TestCacheKeepsGoMemory(t *testing.T) {
	d, _ := open(t, "tcp")
	c := newCache(t, d, CacheOptions{})
	var collected atomic.Bool
	addr := func() uint64 {
		b := make([]byte, 1<<16)
		runtime.AddCleanup(&b[0], func(*atomic.Bool) { collected.Store(true) }, &collected)
		l, err := c.Acquire(b[100:200], fabric.AccessRemoteRead)
		require.NoError(t, err)
		require.NoError(t, c.Release(l))
		return fabric.Addr(b)
	}()
	for range 3 {
		runtime.GC()
	}
	require.False(t, collected.Load())
	require.NoError(t, c.Invalidate(addr, 1<<16))
	testutil.Eventually(t, testutil.Limit, func() bool { runtime.GC(); return collected.Load() }, "the object to be collected")
}

// strict is a link that registers no more than so many regions, and memory
// below edge for no local writing.
type strict struct {
	fabric.Link
	room int
	edge uint64
}

type strictRegion struct {
	fabric.Region
	l *strict
}

var errStrict = errors.New("the device has no room")

func (l *strict) Register(mem []byte, access fabric.Access) (fabric.Region, error) {
	if l.room == 0 || fabric.Addr(mem) < l.edge && access&fabric.AccessLocalWrite != 0 {
		return nil, errStrict
	}
	r, err := l.Link.Register(mem, access)
	if err != nil {
		return nil, err
	}
	l.room--
	return &strictRegion{Region: r, l: l}, nil
}

func (r *strictRegion) Close() error {
	r.l.room++
	return r.Region.Close()
}

func TestCacheOnALinkThatRefuses(t *testing.T) {
	_, rails := open(t, "tcp")
	b := testutil.Scratch(t, 4096)
	l := &strict{Link: rails[0].own, room: 2, edge: fabric.Addr(b) + 2048}
	d, err := NewDomain(Rail{Link: l})
	require.NoError(t, err)
	c := newCache(t, d, CacheOptions{})
	x, err := c.Acquire(b[:100], 0)
	require.NoError(t, err)
	y, err := c.Acquire(b[100:200], 0)
	require.NoError(t, err)
	_, err = c.Acquire(b[200:300], 0)
	require.ErrorIs(t, err, errStrict)
	c.check(t)
	require.NoError(t, c.Release(x))
	z, err := c.Acquire(b[200:300], 0) // x gives way
	require.NoError(t, err)
	c.check(t)
	require.NoError(t, c.Release(y))
	require.NoError(t, c.Release(z))

	// Half of b cannot be written. Rights of a part do not spread to the whole.
	require.NoError(t, c.Invalidate(fabric.Addr(b), 4096))
	w, err := c.Acquire(b[2048:], fabric.AccessLocalWrite)
	require.NoError(t, err)
	r, err := c.Acquire(b, fabric.AccessRemoteRead)
	require.NoError(t, err)
	require.Equal(t, fabric.AccessRemoteRead, r.reg.key.Rights)
	c.check(t)
	require.NoError(t, c.Release(r))
	require.False(t, covers(c, b, fabric.AccessRemoteRead), "it did not fit into the index")
	require.True(t, covers(c, b[2048:], fabric.AccessLocalWrite))
	require.NoError(t, c.Release(w))
	require.NoError(t, c.Invalidate(fabric.Addr(b), 4096))
	r, err = c.Acquire(b, fabric.AccessRemoteRead)
	require.NoError(t, err)
	w, err = c.Acquire(b[2048:], fabric.AccessLocalWrite) // not with the whole
	require.NoError(t, err)
	require.Equal(t, uint64(2048), w.reg.Key().Len)
	c.check(t)
	require.NoError(t, c.Release(w))
	require.NoError(t, c.Release(r))
	c.check(t)
	require.NoError(t, c.Close())
	require.Equal(t, 2, l.room)
}

func TestCacheHitAllocatesNothing(t *testing.T) {
	d, _ := open(t, "sim")
	c := newCache(t, d, CacheOptions{})
	b := testutil.Scratch(t, 1<<16)
	hit := func() {
		for i := range 16 {
			m := b[i<<12:][:4096]
			l, err := c.Acquire(m, fabric.AccessRemoteRead)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := l.SGE(0, m); err != nil {
				t.Fatal(err)
			}
			if _, err := l.RemoteKey(m[5:]); err != nil {
				t.Fatal(err)
			}
			if err := c.Release(l); err != nil {
				t.Fatal(err)
			}
		}
	}
	hit()
	require.Zero(t, testing.AllocsPerRun(100, hit))
	require.EqualValues(t, 16, c.Stats().Misses)
}

func BenchmarkCache(b *testing.B) {
	const entries, size = 1024, 8192
	d, _ := open(b, "tcp")
	c := newCache(b, d, CacheOptions{Entries: entries})
	mem := testutil.Scratch(b, entries*size)
	run := func(name string, pick func(i int) []byte) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				l, err := c.Acquire(pick(i), fabric.AccessRemoteRead)
				if err != nil {
					b.Fatal(err)
				}
				if err := c.Release(l); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	for i := range entries {
		l, err := c.Acquire(mem[i*size:][:size], fabric.AccessRemoteRead)
		require.NoError(b, err)
		require.NoError(b, c.Release(l))
	}
	run("hit/same", func(int) []byte { return mem[:size] })
	run("hit/16", func(i int) []byte { return mem[i%16*size+100:][:4000] })
	run("hit/1024 at random", func(i int) []byte { return mem[uint32(i)*2654435761>>22*size:][:size] })
	c = newCache(b, d, CacheOptions{Entries: 1})
	run("miss and evict", func(i int) []byte { return mem[i%2*size:][:size] })
}
