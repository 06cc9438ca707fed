//go:build unix

package mr

import (
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/offheap"
	"github.com/seed33544411/rma/internal/testutil"
)

// reach lets a peer of every rail write and read the registration by its key,
// as it comes out of the marshalled form.
func reach(t *testing.T, r *Registration, rails []*rail) {
	key := r.Key()
	k, _, err := ParseKey(key.Append(nil))
	require.NoError(t, err)
	n := min(len(r.Bytes()), 5000)
	for i, x := range rails {
		rk := on(&k, uint8(i+1))
		if x.local == nil {
			x.connect(t)
		}
		seed := uint64(i + 10)
		testutil.Fill(x.local.Bytes()[:n], seed, 0)
		require.NoError(t, x.access(t, fabric.OpWrite, rk, k.Addr, n))
		require.NoError(t, testutil.Verify(r.Bytes()[:n], seed, 0))
		testutil.Fill(r.Bytes()[:n], seed+1, 0)
		require.NoError(t, x.access(t, fabric.OpRead, rk, k.Addr, n))
		require.NoError(t, testutil.Verify(x.local.Bytes()[:n], seed+1, 0))
	}
}

// refused tries every rail: the target must not change.
func refused(t *testing.T, k Key, mem []byte, addr uint64, rails []*rail) {
	testutil.Fill(mem, 99, 0)
	for i, x := range rails {
		if x.local == nil {
			x.connect(t)
		}
		rk := on(&k, uint8(i+1))
		require.ErrorIs(t, x.access(t, fabric.OpWrite, rk, addr, 64), fabric.ErrRemoteAccess)
		require.NoError(t, testutil.Verify(mem, 99, 0))
	}
}

func TestOneRegistrationOnAllRails(t *testing.T) { eachLink(t, oneRegistration) }

func oneRegistration(t *testing.T, d *Domain, rails []*rail) {
	for what, register := range map[string]func() (*Registration, error){
		"alloc": func() (*Registration, error) { return d.Alloc(100000, fabric.AccessAll, offheap.Scratch) },
		"go":    func() (*Registration, error) { return d.Register(make([]byte, 8000), fabric.AccessAll) },
		"off the heap": func() (*Registration, error) {
			m := testutil.Scratch(t, 3*offheap.PageSize)
			return d.Register(m[100:][:2*offheap.PageSize], fabric.AccessAll)
		},
	} {
		t.Run(what, func(t *testing.T) {
			r, err := register()
			require.NoError(t, err)
			runtime.GC()
			reach(t, r, rails)
			for i := range rails {
				s, err := r.SGE(i, 10, 20)
				require.NoError(t, err)
				require.Equal(t, fabric.NewSGE(r.Bytes()[10:30], r.regs[i].LKey()), s)
				require.Equal(t, r.regs[i].LKey(), r.LKey(i))
			}
			// Past the end, on each rail.
			refused(t, r.Key(), r.Bytes(), r.Key().Addr+r.Key().Len-32, rails)
			require.NoError(t, r.Close())
			require.NoError(t, r.Close(), "idempotent")
		})
	}
}

// A key of memory that was withdrawn, its address registered again: refused by
// every link and by Resolve, and nothing is touched.
func TestStaleKeys(t *testing.T) { eachLink(t, staleKeys) }

func staleKeys(t *testing.T, d *Domain, rails []*rail) {
	mem := testutil.Scratch(t, 4096)
	old, err := d.Register(mem, fabric.AccessAll)
	require.NoError(t, err)
	stale := old.Key()
	require.NoError(t, old.Close())
	again, err := d.Register(mem, fabric.AccessAll)
	require.NoError(t, err)
	require.Equal(t, stale.Ref.Slot, again.Key().Ref.Slot, "the slot is not used again: the test tests nothing")
	refused(t, stale, mem, stale.Addr, rails)
	_, _, err = d.Resolve(stale.Ref, stale.Addr, 1, 0)
	require.ErrorIs(t, err, ErrStale)
	reach(t, again, rails)
	require.NoError(t, again.Close())
}

func TestForgedKeys(t *testing.T) {
	d, _ := open(t, "sim")
	r, err := d.Alloc(4096, fabric.AccessRemoteRead, offheap.Scratch)
	require.NoError(t, err)
	key := r.Key()
	hostile := func(ref Ref, addr, n uint64, need fabric.Access, want error) {
		t.Helper()
		mem, held, err := d.Resolve(ref, addr, n, need)
		require.ErrorIs(t, err, want)
		require.ErrorIs(t, err, fabric.ErrRemoteAccess)
		require.Nil(t, mem)
		require.Nil(t, held)
		require.Zero(t, r.Holds())
	}
	ref := key.Ref
	for bit := range 64 {
		hostile(Ref{ref.Slot, ref.Epoch ^ 1<<bit}, key.Addr, 1, 0, ErrStale)
	}
	for _, slot := range []uint32{ref.Slot + 1, ref.Slot + pageSlots, MaxRegistrations - 1, MaxRegistrations, math.MaxUint32} {
		hostile(Ref{slot, ref.Epoch}, key.Addr, 1, 0, ErrStale)
	}
	hostile(Ref{}, key.Addr, 1, 0, ErrStale)
	hostile(ref, key.Addr-1, 1, 0, ErrBounds)
	hostile(ref, key.Addr, 4097, 0, ErrBounds)
	hostile(ref, key.Addr+4096, 1, 0, ErrBounds)
	hostile(ref, key.Addr+1, math.MaxUint64, 0, ErrBounds)
	hostile(ref, math.MaxUint64, 2, 0, ErrBounds)
	hostile(ref, 0, key.Addr+1, 0, ErrBounds)
	hostile(ref, key.Addr, 1, fabric.AccessRemoteWrite, ErrRights)
	hostile(ref, key.Addr, 1, fabric.AccessRemoteRead|fabric.AccessLocalWrite, ErrRights)
	rng := rand.New(rand.NewPCG(1, 2))
	for range 10000 {
		hostile(Ref{rng.Uint32N(2), rng.Uint64()}, rng.Uint64(), rng.Uint64(), fabric.Access(rng.Uint32()), ErrStale)
	}

	mem, held, err := d.Resolve(ref, key.Addr+10, 20, fabric.AccessRemoteRead)
	require.NoError(t, err)
	require.Len(t, mem, 20)
	require.Equal(t, 20, cap(mem))
	require.Equal(t, key.Addr+10, fabric.Addr(mem))
	require.NoError(t, held.Release())
	require.ErrorIs(t, held.Release(), ErrReleased)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		_, held, err := d.Resolve(ref, key.Addr, 4096, fabric.AccessRemoteRead)
		if err != nil || held.Release() != nil {
			t.Fatal(err)
		}
	}))
}

// Close while somebody holds the memory: stale at once, there until released.
func TestCloseWaitsForHolds(t *testing.T) { eachLink(t, closeWaits) }

func closeWaits(t *testing.T, d *Domain, rails []*rail) {
	before := offheap.Total()
	r, err := d.Alloc(4096, fabric.AccessAll, offheap.Scratch)
	require.NoError(t, err)
	key := r.Key()
	mem, held, err := d.Resolve(key.Ref, key.Addr, 4096, 0)
	require.NoError(t, err)
	require.True(t, held.Hold())
	err = r.Close()
	require.ErrorIs(t, err, ErrInUse)
	var in *InUseError
	require.ErrorAs(t, err, &in)
	require.Equal(t, 2, in.Holds)
	_, _, err = d.Resolve(key.Ref, key.Addr, 1, 0)
	require.ErrorIs(t, err, ErrStale)
	require.False(t, r.Hold())
	mem[4095] = 1 // still mapped
	require.ErrorIs(t, d.Close(), ErrInUse)
	require.NoError(t, held.Release())
	require.ErrorIs(t, r.Close(), ErrInUse)
	require.Equal(t, 1, d.Live())
	require.NoError(t, held.Release())
	require.Zero(t, d.Live())
	require.Equal(t, before, offheap.Total())
	require.NoError(t, r.Close())
	_, err = d.Register(make([]byte, 1), 0)
	require.ErrorIs(t, err, ErrClosed)
}

// Memory that a registration owns stays while parts of it are registered separately, and
// both remain usable. Closing the domain closes both, whatever holds the part.
func TestMemoryRegisteredInParts(t *testing.T) { eachLink(t, inParts) }

func inParts(t *testing.T, d *Domain, rails []*rail) {
	alloc := func() (whole, part *Registration) {
		whole, err := d.Alloc(4*offheap.PageSize, fabric.AccessAll, offheap.Scratch)
		require.NoError(t, err)
		part, err = d.Register(whole.Bytes()[offheap.PageSize:][:offheap.PageSize], fabric.AccessAll)
		require.NoError(t, err)
		return whole, part
	}
	whole, part := alloc()
	require.ErrorIs(t, whole.Close(), ErrInUse)
	require.True(t, whole.Live())
	reach(t, whole, rails)
	reach(t, part, rails)
	key := part.Key()
	mem, held, err := d.Resolve(key.Ref, key.Addr, 8, 0)
	require.NoError(t, err)
	require.ErrorIs(t, part.Close(), ErrInUse)
	require.ErrorIs(t, whole.Close(), ErrInUse)
	require.False(t, whole.Live(), "the part is closed")
	mem[7] = 1 // still mapped
	require.NoError(t, held.Release())
	testutil.Eventually(t, testutil.Limit, func() bool { return d.Live() == 0 }, "the memory to go")
	require.NoError(t, whole.Close())

	before := offheap.Total()
	for range 8 { // in any order
		alloc()
	}
	_, part = alloc()
	require.True(t, part.Hold())
	require.ErrorIs(t, d.Close(), ErrInUse)
	part.Bytes()[0] = 1
	require.NoError(t, part.Release())
	testutil.Eventually(t, testutil.Limit, func() bool { return d.Live() == 0 }, "the memory to go")
	require.Equal(t, before, offheap.Total())
}

// Memory of no bytes has a key; nothing can be reached with it.
func TestNoBytes(t *testing.T) {
	d, _ := open(t, "sim", "tcp")
	r, err := d.Alloc(0, fabric.AccessAll, offheap.Scratch)
	require.NoError(t, err)
	require.Empty(t, r.Bytes())
	k := r.Key()
	require.Zero(t, k.Len)
	got, _, err := ParseKey(k.Append(nil))
	require.NoError(t, err)
	require.Equal(t, k, got)
	require.ErrorIs(t, k.Check(k.Addr, 1, 0), ErrBounds)
	require.NoError(t, k.Check(k.Addr, 0, fabric.AccessRemoteWrite))
	_, err = r.SGE(0, 0, 1)
	require.ErrorIs(t, err, ErrBounds)
	_, err = r.SGE(0, 0, 0)
	require.NoError(t, err)
	_, _, err = d.Resolve(k.Ref, k.Addr, 1, 0)
	require.ErrorIs(t, err, ErrBounds)
	require.NoError(t, r.Close())
	require.Zero(t, d.Live())
}

func TestWhatCannotBeRegistered(t *testing.T) {
	d, rails := open(t, "sim", "tcp")
	_, err := d.Register(nil, 0)
	require.ErrorIs(t, err, ErrSize)
	for _, n := range []int{-1, math.MaxInt} {
		_, err = d.Alloc(n, 0, offheap.Scratch)
		require.Error(t, err)
	}
	own := testutil.Scratch(t, 2*offheap.PageSize)
	require.Equal(t, 0, int(fabric.Addr(own))%offheap.PageSize)

	r, err := d.Register(own, fabric.AccessAll)
	require.NoError(t, err)
	for _, c := range [][3]int{{0, -1, 1}, {0, 0, -1}, {0, 0, len(own) + 1}, {0, len(own), 1}, {0, math.MaxInt, 1}, {0, 1, math.MaxInt}} {
		_, err = r.SGE(c[0], c[1], c[2])
		require.ErrorIs(t, err, ErrBounds)
	}
	for _, rail := range []int{-1, 2, math.MaxInt} {
		_, err = r.SGE(rail, 0, 1)
		require.ErrorIs(t, err, ErrNoRail)
	}
	require.NoError(t, r.Close())

	_, err = NewDomain()
	require.Error(t, err)
	_, err = NewDomain(Rail{rails[0].own, 1}, Rail{rails[1].own, 1})
	require.Error(t, err)
	_, err = NewDomain(Rail{rails[0].own, MaxRails})
	require.Error(t, err)
}

// A link that refuses in the middle leaves nothing behind on the others.
func TestRegistrationIsAllOrNothing(t *testing.T) {
	d, rails := open(t, "tcp", "sim")
	require.NoError(t, rails[1].own.Close())
	before := offheap.Total()
	_, err := d.Register(make([]byte, 100), 0)
	require.ErrorIs(t, err, ErrClosed)
	_, err = d.Alloc(100, 0, offheap.Scratch)
	require.ErrorIs(t, err, ErrClosed)
	require.Equal(t, before, offheap.Total())
	require.Zero(t, d.Live())
}

func TestTableIsBounded(t *testing.T) {
	d, _ := open(t, "tcp")
	mem := testutil.Scratch(t, 64)
	var all []*Registration
	refs := map[Ref]bool{}
	random := map[uint32]bool{}
	for range MaxRegistrations {
		r, err := d.Register(mem, 0)
		require.NoError(t, err)
		require.False(t, refs[r.key.Ref])
		refs[r.key.Ref] = true
		random[uint32(r.key.Ref.Epoch)] = true
		all = append(all, r)
	}
	require.Greater(t, len(random), MaxRegistrations-8, "the random halves repeat")
	_, err := d.Register(mem, 0)
	require.Error(t, err)
	for _, r := range all {
		require.NoError(t, r.Close())
	}
	r, err := d.Register(mem, 0)
	require.NoError(t, err)
	require.False(t, refs[r.key.Ref])
	require.NoError(t, r.Close())
}

// Resolving beside registering and closing: what resolves stays usable until
// it is released.
func TestResolveBesideClose(t *testing.T) {
	d, _ := open(t, "sim", "shm", "tcp")
	refs := make(chan Key)
	var wg sync.WaitGroup
	for g := range 2 {
		wg.Go(func() {
			for i := range 300 {
				r, err := d.Alloc(4096, fabric.AccessAll, offheap.Scratch)
				if err != nil {
					t.Error(err)
					return
				}
				r.Bytes()[0] = byte(g*2 + i)
				refs <- r.Key()
				for r.Close() != nil {
					runtime.Gosched()
				}
			}
		})
	}
	resolved := 0
	go func() { wg.Wait(); close(refs) }()
	for k := range refs {
		mem, held, err := d.Resolve(k.Ref, k.Addr, 4096, fabric.AccessRemoteRead)
		if err != nil {
			require.ErrorIs(t, err, ErrStale)
			continue
		}
		resolved++
		_ = mem[4095] // faults if it is gone
		require.NoError(t, held.Release())
	}
	t.Log("resolved", resolved)
}
