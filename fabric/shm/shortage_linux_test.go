package shm

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/testutil"
)

// eater takes all descriptors that the process may still have.
type eater []int

func (e *eater) eat() error {
	lim := unix.Rlimit{}
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
		return err
	}
	lim.Cur = 64
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
		return err
	}
	for {
		fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err == unix.EMFILE {
			return nil
		}
		if err != nil {
			return err
		}
		*e = append(*e, fd)
	}
}

func (e *eater) spit() {
	closeFDs(*e)
	*e = nil
}

// short is a child that runs out of descriptors at the moment that it is told, "connect"
// or "regions", and goes on until it has them again.
var short = testutil.NewChild("shm-short", func(args []string, in *bufio.Reader, out io.Writer) error {
	o := Options{DisableCMA: args[1] == "no cma"}
	l, err := open(o)
	if err != nil {
		return err
	}
	ep, err := l.newEndpoint(fabric.EndpointOptions{})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%x\n", ep.Address())
	var addr []byte
	if _, err := fmt.Fscanf(in, "%x\n", &addr); err != nil {
		return err
	}
	var e eater
	ctx, cancel := contextFor(testutil.Limit)
	defer cancel()
	mem, err := l.Register(mustScratch(4096), fabric.AccessAll)
	if err != nil {
		return err
	}
	if args[0] == "connect" {
		if err := e.eat(); err != nil {
			return err
		}
		_, err2 := l.Alloc(4096, fabric.AccessAll)
		_, err3 := l.NewEndpoint(fabric.EndpointOptions{})
		err := ep.Connect(ctx, addr) // it gives descriptors back
		if err := e.eat(); err != nil {
			return err
		}
		_, err4 := Open(Options{})
		for _, err := range []error{err, err2, err3, err4} {
			if !errors.Is(err, fabric.ErrResources) || !errors.Is(err, unix.EMFILE) {
				return fmt.Errorf("want a shortage of descriptors: %w", err)
			}
		}
		fmt.Fprintln(out, "told")
		return nil
	}
	if err := ep.Connect(ctx, addr); err != nil {
		return err
	}
	if err := e.eat(); err != nil {
		return err
	}
	fmt.Fprintln(out, "eaten")
	var keys []fabric.RemoteKey
	for {
		var kb []byte
		if _, err := fmt.Fscanf(in, "%x\n", &kb); err != nil || len(kb) == 1 {
			break
		}
		k, _, err := fabric.ParseRemoteKey(kb)
		if err != nil {
			return err
		}
		keys = append(keys, k)
	}
	var cs [4]fabric.Completion
	put := func(round uint64) error {
		for i, k := range keys {
			testutil.Store64(mem.Bytes(), round+uint64(i))
			if n, err := ep.Post([]fabric.WR{write(mem, 0, 8, k, 0)}); n != 1 || err != nil {
				return fmt.Errorf("put to region %d: %d, %w, %w", i, n, err, ep.Err())
			}
			for {
				if l.Poll(cs[:]) == 0 {
					continue
				}
				if err := cs[0].Err(); err != nil {
					return fmt.Errorf("put to region %d: %w", i, err)
				}
				break
			}
		}
		return nil
	}
	if err := put(1000); err != nil {
		return err
	}
	if len(ep.mem.segs) != 0 {
		return fmt.Errorf("%d segments came without a descriptor", len(ep.mem.segs))
	}
	fmt.Fprintln(out, "put")
	_, _ = in.ReadString('\n')
	e.spit()
	for len(ep.mem.segs) != len(keys) && ctx.Err() == nil {
		if err := put(2000); err != nil {
			return err
		}
	}
	if len(ep.mem.lacking) != 0 {
		return fmt.Errorf("%d still lacking of %d", len(ep.mem.lacking), len(keys))
	}
	fmt.Fprintln(out, "mapped")
	_, _ = in.ReadString('\n')
	return nil
})

// A process that is out of descriptors keeps its connections: regions that it cannot map
// are reached like private memory until it can. What needs one says what is missing.
func TestOutOfDescriptors(t *testing.T) {
	start := func(t *testing.T, args ...string) (*testutil.Proc, *endpoint, []byte) {
		l, err := open(Options{DisableCMA: args[1] == "no cma"})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, l.Close()) })
		ep, err := l.newEndpoint(fabric.EndpointOptions{})
		require.NoError(t, err)
		p := short.Start(t, args...)
		addr, err := hex.DecodeString(p.Line(t, testutil.Limit))
		require.NoError(t, err)
		_, err = fmt.Fprintf(p.In, "%x\n", ep.Address())
		require.NoError(t, err)
		return p, ep, addr
	}
	for range 4 { // either side may be the one that dials
		p, ep, addr := start(t, "connect", "")
		ctx, cancel := contextFor(testutil.Limit)
		go func() { _ = ep.Connect(ctx, addr) }()
		require.Equal(t, "told", p.Line(t, testutil.Limit))
		cancel()
		require.NoError(t, p.Wait(testutil.Limit))
	}
	for _, cma := range []string{"cma", "no cma"} {
		t.Run(cma, func(t *testing.T) {
			p, ep, addr := start(t, "regions", cma)
			require.NoError(t, ep.Connect(testutil.Context(t, testutil.Limit), addr))
			require.Equal(t, "eaten", p.Line(t, testutil.Limit))
			var rs []fabric.Region
			for range 20 {
				rs = append(rs, alloc(t, ep.link, 4096))
				_, err := fmt.Fprintf(p.In, "%x\n", rs[len(rs)-1].Key().Append(nil))
				require.NoError(t, err)
			}
			_, err := fmt.Fprintf(p.In, "00\n")
			require.NoError(t, err)
			line := make(chan string, 1)
			for _, want := range []string{"put", "mapped"} {
				go func() { s, _ := p.Out.ReadString('\n'); line <- s }()
				var got string
				testutil.Eventually(t, testutil.Limit, func() bool {
					poll(t, ep.link)
					select {
					case got = <-line:
						return true
					default:
						return false
					}
				}, "the child")
				require.Equal(t, want+"\n", got)
				base := map[string]int{"put": 1000, "mapped": 2000}[want]
				for i, r := range rs {
					require.EqualValues(t, base+i, testutil.Load64(r.Bytes()))
				}
				_, err := fmt.Fprintln(p.In)
				require.NoError(t, err)
			}
			require.NoError(t, p.Wait(testutil.Limit))
		})
	}
}
