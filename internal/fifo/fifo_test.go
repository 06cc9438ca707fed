package fifo

import (
	"container/list"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// A ring is a slice at whose ends things happen.
func TestRingAgainstSlice(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 1))
	for _, capacity := range []int{1, 2, 3, 8} {
		r := NewRing[*int](capacity)
		var want []*int
		for range 1000 {
			if rng.IntN(2) == 0 && len(want) < capacity {
				v := new(int)
				r.Push(v)
				want = append(want, v)
			} else if len(want) > 0 {
				require.Same(t, want[0], *r.Front())
				require.Same(t, want[0], r.Pop())
				want = want[1:]
			}
			require.Equal(t, len(want), r.Len())
			held := 0
			for _, p := range r.q {
				if p != nil {
					held++
				}
			}
			require.Equal(t, len(want), held, "what was taken out is not kept alive")
		}
	}
}

func TestRingMisuse(t *testing.T) {
	t.Parallel()
	r := NewRing[int](1)
	require.Panics(t, func() { r.Pop() })
	require.Panics(t, func() { r.Front() })
	r.Push(1)
	require.Panics(t, func() { r.Push(2) })
	require.Equal(t, 1, r.Pop())
}

// A queue is a slice without an end.
func TestQueueAgainstSlice(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 1))
	var q Queue[int]
	var want []int
	require.Panics(t, func() { q.Back() })
	require.Panics(t, func() { q.Pop() })
	for i := range 3000 {
		if rng.IntN(5) < 2 && len(want) > 0 {
			require.Equal(t, want[0], q.Pop())
			want = want[1:]
		} else {
			q.Push(i)
			want = append(want, i)
		}
		require.Equal(t, len(want), q.Len())
		if len(want) > 0 {
			require.Equal(t, want[0], *q.Front())
			require.Equal(t, want[len(want)-1], *q.Back())
		}
	}
	require.Greater(t, q.Len(), 64, "it has grown")
}

type item struct {
	node Node[item]
	at   *list.Element
}

// Whatever is put in and taken out, wherever: a List is container/list.
func TestListAgainstStandard(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(2, 1))
	var l List[item]
	want := list.New()
	free := make([]*item, 20)
	for i := range free {
		free[i] = &item{}
	}
	some := func() *item {
		e := want.Front()
		for range rng.IntN(want.Len()) {
			e = e.Next()
		}
		return e.Value.(*item)
	}
	require.Nil(t, l.Pop())
	for range 5000 {
		op := rng.IntN(5)
		switch {
		case op < 3 && len(free) > 0:
			x := free[len(free)-1]
			free = free[:len(free)-1]
			switch {
			case op == 2 && want.Len() > 0:
				y := some()
				l.Insert(&y.node, &x.node, x)
				x.at = want.InsertAfter(x, y.at)
			case op == 1:
				l.PushFront(&x.node, x)
				x.at = want.PushFront(x)
			default:
				l.Push(&x.node, x)
				x.at = want.PushBack(x)
			}
		case want.Len() == 0:
		case op == 3:
			x := l.Pop()
			require.Same(t, want.Remove(want.Front()), x)
			free = append(free, x)
		default:
			x := some()
			l.Remove(&x.node)
			want.Remove(x.at)
			free = append(free, x)
		}
		require.Equal(t, want.Len(), l.Len())
		x := l.Front()
		var last *Node[item]
		for e := want.Front(); e != nil; e = e.Next() {
			require.Same(t, e.Value, x)
			require.Same(t, last, x.node.prev)
			last, x = &x.node, x.node.Next()
		}
		require.Nil(t, x)
		require.Same(t, last, l.tail)
	}
}

func TestNothingAllocates(t *testing.T) {
	r, xs := NewRing[uint16](8), make([]item, 8)
	var l List[item]
	require.Zero(t, testing.AllocsPerRun(100, func() {
		for i := range xs {
			r.Push(uint16(i))
			l.Push(&xs[i].node, &xs[i])
		}
		for range xs {
			r.Pop()
			l.Pop()
		}
	}))
}

func BenchmarkList(b *testing.B) {
	var l List[item]
	xs := make([]item, 4)
	for i := range xs[1:] {
		l.Push(&xs[i].node, &xs[i])
	}
	for b.Loop() {
		x := l.Pop()
		l.Push(&x.node, x)
	}
}

func BenchmarkRing(b *testing.B) {
	r := NewRing[uint16](100)
	r.Push(1)
	for b.Loop() {
		r.Push(r.Pop())
	}
}
