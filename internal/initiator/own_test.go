package initiator

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/linktest"
	"github.com/seed33544411/rma/internal/onesided"
	"github.com/seed33544411/rma/internal/testutil"
)

// posted is an endpoint that counts the requests posted to its link.
type posted struct {
	fabric.Endpoint
	fabric.Direct
	n int
}

func (p *posted) Post(wrs []fabric.WR) (int, error) {
	p.n += len(wrs)
	return p.Endpoint.Post(wrs)
}

// Operations of a rank on itself are executed by the rank, on links that map
// memory, and over tcp: no request is posted, whatever their size and kind.
func TestOwnOperationsAreLocal(t *testing.T) {
	for _, name := range []string{"shm", "tcp"} {
		t.Run(name, func(t *testing.T) {
			l, _ := linktest.Real()[name](t)
			s := newSide(t, l)
			s.Prog.Do(func() { s.Queue.own, s.Queue.immediate = true, true })
			s.other = s
			var other fabric.Endpoint
			s.EP, other = linktest.Join(t, l, l, fabric.EndpointOptions{})
			t.Cleanup(func() { s.close(t) })
			direct, ok := s.EP.(fabric.Direct)
			require.True(t, ok)
			p := &posted{Endpoint: s.EP, Direct: direct}
			s.Prog.Do(func() { s.Queue.Up(p) })
			mem, k := s.region.Bytes(), s.region.Key()
			mem[0] = 7
			testutil.Eventually(t, testutil.Limit, func() (reached bool) {
				s.Prog.Do(func() {
					reached = p.Reach(fabric.AccessRemoteRead, k.RKeys[0], k.Addr, 8) != nil
					p.Stored(false)
				})
				return reached
			}, "the link to adopt the connection")
			local := func(off, n int) fabric.SGE { return fabric.NewSGE(mem[off:off+n], s.region.LKey(0)) }

			for i, n := range []int{8, 4096, 100 << 10, 512 << 10} {
				o := s.op(Put, 512<<10)
				o.Local(local(0, n))
				_, err := s.do(t, o)
				require.NoError(t, err)
				require.Equal(t, mem[0], mem[512<<10], "put %d", i)
				mem[512<<10]++
				o = s.op(Get, 512<<10)
				o.Local(local(0, n))
				_, err = s.do(t, o)
				require.NoError(t, err)
				require.Equal(t, mem[512<<10], mem[0], "get %d", i)
			}

			binary.NativeEndian.PutUint64(mem[64:], 5)
			o := s.op(FetchAdd, 64)
			o.Operands(0, 3)
			was, err := s.do(t, o)
			require.NoError(t, err)
			require.Equal(t, uint64(5), was)
			o = s.op(CompareSwap, 64)
			o.Operands(8, 11)
			was, err = s.do(t, o)
			require.NoError(t, err)
			require.Equal(t, uint64(8), was)
			o = s.op(Emulated, 64)
			o.Emulate(onesided.RMW{Func: onesided.Xor, Arg: 1})
			was, err = s.do(t, o)
			require.NoError(t, err)
			require.Equal(t, uint64(11), was)
			require.Equal(t, uint64(10), binary.NativeEndian.Uint64(mem[64:]))

			o = New(&s.Queue, Put) // pieces of 100 KiB
			c := o.Cursor()
			for i := range 2 {
				mem[i<<17]++
				c.AddLocal(onesided.Piece{Addr: k.Addr + uint64(i)<<17, Len: 100 << 10, Key: s.region.LKey(0)})
				c.AddRemote(onesided.Piece{Addr: k.Addr + uint64(4+i)<<17, Len: 100 << 10, Key: k.RKeys[0]})
			}
			c.End()
			_, err = s.do(t, o)
			require.NoError(t, err)
			require.Equal(t, []byte{mem[0], mem[1<<17]}, []byte{mem[4<<17], mem[5<<17]})

			require.Zero(t, p.n, "requests of the link")
			s.Prog.Do(func() { require.Zero(t, s.Queue.InFlight()) })
			s.Prog.Do(func() { require.NoError(t, other.Close()) }) // the progress goroutine polls its link
		})
	}
}
