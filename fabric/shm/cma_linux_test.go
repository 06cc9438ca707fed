package shm

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
)

// farPair is a pair with private memory at both ends that process_vm calls reach.
func farPair(t *testing.T, size int) (x, y *endpoint, la, lb fabric.Region) {
	x, y = pair(t, ways["cma"], fabric.EndpointOptions{})
	if !x.cma.works {
		t.Skip("no process_vm calls here: ", x.cma.why)
	}
	return x, y, alloc(t, x.link, size), alloc(t, y.link, size)
}

// Lists of many small requests, some of them with several pieces, notifications and
// empty ones among them: each arrives where it should and completes once, in order.
func TestFarLists(t *testing.T) {
	t.Parallel()
	const size = 64 << 10
	x, y, la, lb := farPair(t, size)
	for _, op := range []fabric.Op{fabric.OpWrite, fabric.OpRead} {
		for _, n := range []int{1, 2, 31, 32, 33, 100} {
			mix(la.Bytes(), uint64(n))
			mix(lb.Bytes(), uint64(n)+5)
			want := bytes.Clone(lb.Bytes())
			from, target := la.Bytes(), lb.Bytes()
			if op == fabric.OpRead {
				want, from, target = bytes.Clone(la.Bytes()), lb.Bytes(), la.Bytes()
			}
			var list []fabric.WR
			notes := 0
			for i := range n {
				at, k := 600*i, 8*(i%9)+i%3 // 0 and what does not end on a word as well
				copy(want[at:at+k], from[at:])
				wr := fabric.WR{ID: uint64(i), Op: op, RemoteAddr: lb.Addr() + uint64(at), RKey: lb.Key().RKey, Flags: fabric.FlagSignaled}
				for p := range 1 + i%3 {
					a, b := p*k/(1+i%3), (p+1)*k/(1+i%3)
					wr.Local = append(wr.Local, fabric.SGE{Addr: la.Addr() + uint64(at+a), Len: uint32(b - a), LKey: la.LKey()})
				}
				if op == fabric.OpWrite && i%17 == 5 {
					wr.Flags |= fabric.FlagNotify
					notes++
				}
				list = append(list, wr)
			}
			k, err := x.Post(list)
			require.NoError(t, err)
			require.Equal(t, n, k)
			require.True(t, bytes.Equal(want, target), "%v of %d", op, n)
			var cs [200]fabric.Completion
			got := x.link.Poll(cs[:])
			require.Equal(t, n, got)
			for i := range got {
				require.NoError(t, cs[i].Err())
				require.EqualValues(t, i, cs[i].ID)
			}
			require.Equal(t, notes, y.link.Poll(cs[:]))
		}
	}
}

// What shares a call, and what does not.
func TestTogether(t *testing.T) {
	t.Parallel()
	x, _, la, lb := farPair(t, 1<<20)
	other := alloc(t, la.(*region).link, 4096)
	put := func(n int) fabric.WR { return write(la, 0, n, lb.Key(), 0) }
	with := func(wr fabric.WR, f func(*fabric.WR)) fabric.WR { f(&wr); return wr }
	many := make([]fabric.WR, 100)
	for i := range many {
		many[i] = put(16)
	}
	get := with(put(16), func(w *fabric.WR) { w.Op = fabric.OpRead })
	w := put(16)
	at := x.lookup(w.RKey, w.RemoteAddr, 16, 0)
	for name, c := range map[string]struct {
		list []fabric.WR
		want int
	}{
		"one":                 {[]fabric.WR{put(8)}, 1},
		"alike":               {[]fabric.WR{put(8), put(100), put(64)}, 3},
		"as many as a call":   {many, maxIov / 2},
		"too long together":   {[]fabric.WR{put(8), put(maxTogether)}, 1},
		"one that is long":    {[]fabric.WR{put(maxTogether + 1), put(8)}, 1},
		"another kind":        {[]fabric.WR{put(8), get}, 1},
		"reads":               {[]fabric.WR{get, get, put(8)}, 2},
		"a notification":      {[]fabric.WR{put(8), with(put(8), func(w *fabric.WR) { w.Flags |= fabric.FlagNotify })}, 1},
		"behind notification": {[]fabric.WR{with(put(8), func(w *fabric.WR) { w.Flags |= fabric.FlagNotify }), put(8)}, 1},
		"nothing to move":     {[]fabric.WR{put(8), put(0), put(8)}, 1},
		"a key that is wrong": {[]fabric.WR{put(8), with(put(8), func(w *fabric.WR) { w.RKey++ })}, 1},
		"out of bounds":       {[]fabric.WR{put(8), with(put(8), func(w *fabric.WR) { w.RemoteAddr += 1 << 20 })}, 1},
		"local out of bounds": {[]fabric.WR{put(8), with(put(8), func(w *fabric.WR) { w.Local = []fabric.SGE{{Addr: other.Addr(), Len: 8, LKey: la.LKey()}} })}, 1},
		"malformed":           {[]fabric.WR{get, with(get, func(w *fabric.WR) { w.Flags |= fabric.FlagInline })}, 1},
	} {
		want := c.want
		if !storesInOrder && c.list[0].Op == fabric.OpWrite {
			want = 1
		}
		require.Equal(t, want, x.cma.together(c.list, at, x.depth), name)
	}
	require.LessOrEqual(t, x.cma.together(many, at, 2), 2, "no more than there is room for completions")
	for range x.depth - 2 {
		x.cq.Push(fabric.Completion{})
	}
	_, _, more := x.far(many)
	require.LessOrEqual(t, more, 1, "what is queued leaves less room")
}

// One of a list is refused: those before it are done, it says so, those behind it are
// flushed.
func TestFarListFailsInTheMiddle(t *testing.T) {
	t.Parallel()
	x, _, la, lb := farPair(t, 4096)
	mix(la.Bytes(), 1)
	var list []fabric.WR
	for i := range 8 {
		wr := write(la, 64*i, 64, lb.Key(), 64*i)
		wr.ID, wr.Flags = uint64(i), fabric.FlagSignaled
		list = append(list, wr)
	}
	list[5].RemoteAddr += 4096
	_, err := x.Post(list)
	require.NoError(t, err)
	var cs [20]fabric.Completion
	n := x.link.Poll(cs[:])
	require.GreaterOrEqual(t, n, 8)
	for i := range 8 {
		want := fabric.StatusOK
		if i == 5 {
			want = fabric.StatusRemoteAccess
		} else if i > 5 {
			want = fabric.StatusFlushed
		}
		require.Equal(t, want, cs[i].Status, "request %d", i)
	}
	require.True(t, bytes.Equal(la.Bytes()[:320], lb.Bytes()[:320]))
	require.Zero(t, lb.Bytes()[320])
}

// A side whose peer has closed because of a refused request finds that by a request of its own
// before it polls: it reports the refusal all the same, and not that the peer is gone.
func TestRequestAfterARefusal(t *testing.T) {
	for _, stale := range []bool{false, true} {
		x, y, lx, ly := farPair(t, 4096)
		wrong := ly.Key()
		wrong.RKey ^= 1 << 31
		post(t, x, write(lx, 0, 64, wrong, 0))
		require.Equal(t, fabric.StatusRemoteAccess, await(t, x.link).Status)
		to := lx.Key()
		if stale {
			to.RKey ^= 1 << 31
		}
		y.cma.aliveAt = 0
		post(t, y, write(ly, 0, 64, to, 0))
		require.Equal(t, fabric.StatusFlushed, await(t, y.link).Status)
		require.Equal(t, fabric.Completion{EP: y.id, Op: fabric.OpDown, Status: fabric.StatusRemoteAccess}, await(t, y.link))
		require.ErrorIs(t, y.Err(), fabric.ErrRemoteAccess)
	}
}

func BenchmarkFarList(b *testing.B) {
	for _, n := range []int{1, 8, 32} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			x, y := pair(b, ways["cma"], fabric.EndpointOptions{})
			la, lb := alloc(b, x.link, 64), alloc(b, y.link, 64)
			list := make([]fabric.WR, n)
			for i := range list {
				list[i] = write(la, 0, 64, lb.Key(), 0)
				list[i].Flags = 0
			}
			for b.Loop() {
				if k, err := x.Post(list); k != n || err != nil {
					b.Fatal(k, err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/request")
		})
	}
}

// Memory is copied by the call that reads it from another process, where that works.
func TestReadPrivate(t *testing.T) {
	x, _ := pair(t, Options{}, fabric.EndpointOptions{})
	src, dst := []byte("private memory"), make([]byte, 14)
	if x.link.ReadPrivate(dst, src) {
		require.Equal(t, src, dst)
	} else {
		require.NotEmpty(t, x.Near().Reason)
	}
	require.False(t, x.link.ReadPrivate(dst[:13], src))
	require.False(t, x.link.ReadPrivate(nil, nil))
	y, _ := pair(t, Options{DisableCMA: true}, fabric.EndpointOptions{})
	require.False(t, y.link.ReadPrivate(dst, src))
}
