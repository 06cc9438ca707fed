package rma

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/testutil"
)

const farewells = 60

// openChild opens rank 1 of 2, in a process of its own.
func openChild(fabric, root string) (*Engine, error) {
	return Open(context.Background(), &Config{Fabric: Fabric(fabric), Sampling: "off", Job: &Job{Rank: 1, Size: 2, Root: root, Token: []byte("t")}})
}

// openParent opens rank 0 of a job and starts rank 1 as child, which gets the link and the
// job's address before args.
func openParent(t *testing.T, fabric string, child testutil.Child, args ...string) (*Engine, *testutil.Proc) {
	t.Helper()
	c := rendezvous(t, 2, fabric)(0)
	c.Sampling = "off"
	proc := child.Start(t, append([]string{fabric, c.Job.Root}, args...)...)
	e, err := Open(context.Background(), c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return e, proc
}

// farewell sends messages, waits for their requests, closes, and exits.
var farewell = testutil.NewChild("farewell", func(args []string, in *bufio.Reader, out io.Writer) error {
	e, err := openChild(args[0], args[1])
	if err != nil {
		return err
	}
	size, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	var reqs [farewells]Request
	for i := range reqs {
		msg := testutil.Payload(4+i*size, 1, uint64(i))
		binary.LittleEndian.PutUint32(msg, uint32(i))
		reqs[i] = e.Peer(0).SendTag(uint32(i%2), msg)
	}
	if err := WaitAll(context.Background(), reqs[:]...); err != nil {
		return err
	}
	return e.Close()
})

// Messages whose sends are complete arrive although the sender closes its engine and exits
// at once, both at receives posted before and at receives posted when the sender is gone.
func TestFarewell(t *testing.T) {
	for _, fabric := range []string{"shm", "tcp"} {
		for _, size := range []int{0, 40, 500} {
			t.Run(fmt.Sprint(fabric, "/", size), func(t *testing.T) {
				t.Parallel()
				for round := range 4 {
					e, child := openParent(t, fabric, farewell, strconv.Itoa(size))
					ctx := testutil.Context(t, testutil.Limit)
					p := e.Peer(1)
					check := func(r RecvRequest, buf []byte, want int) {
						t.Helper()
						m, err := r.WaitFrom(ctx)
						require.NoError(t, err, "message %d", want)
						require.Equal(t, Envelope{From: 1, Tag: uint32(want % 2), Len: 4 + want*size}, m)
						require.EqualValues(t, want, binary.LittleEndian.Uint32(buf))
						require.NoError(t, testutil.Verify(buf[4:m.Len], 1, uint64(want)+4))
					}
					buf := func() []byte { return make([]byte, 4+farewells*size) }
					first, second := buf(), buf()
					r, wild := p.RecvTag(1, first), e.Recv(second)
					if round%2 == 0 && size < 500 { // larger ones are fetched before their sends are complete
						require.NoError(t, child.Wait(testutil.Limit))
						testutil.Eventually(t, testutil.Limit, func() bool { return p.Stats().Err != nil }, "the end of the peer")
					}
					check(r, first, 1)
					check(wild, second, 0)
					// Of two tags, each in its order.
					b := buf()
					for i := 3; i < farewells; i += 2 {
						check(p.RecvTag(1, b), b, i)
					}
					for i := 2; i < farewells; i += 2 {
						if i%4 == 0 {
							check(p.Recv(b), b, i)
						} else {
							check(e.RecvTag(0, b), b, i)
						}
					}
					_, err := p.Recv(b).Wait(ctx)
					require.ErrorIs(t, err, ErrPeerGone)
					_, err = e.Recv(b).Wait(ctx)
					require.ErrorIs(t, err, ErrNoSender)
					require.NoError(t, child.Wait(testutil.Limit))
				}
			})
		}
	}
}

// doomed sends messages of all sizes until it is killed.
var doomed = testutil.NewChild("doomed", func(args []string, in *bufio.Reader, out io.Writer) error {
	e, err := openChild(args[0], args[1])
	if err != nil {
		return err
	}
	const window = 16
	var reqs [window]Request
	for i := 0; ; i++ {
		if i >= window {
			if err := reqs[i%window].Wait(context.Background()); err != nil {
				return err
			}
		}
		size := 8
		if i%5 == 2 {
			size = 2 << 20
		}
		msg := make([]byte, size)
		binary.LittleEndian.PutUint32(msg, uint32(i))
		reqs[i%window] = e.Peer(0).Send(msg)
		if i == window {
			fmt.Fprintln(out, "going")
		}
	}
})

// The messages received from a killed rank are a prefix of those that it had sent.
func TestKilledSendersMessagesAreAPrefix(t *testing.T) {
	for _, fabric := range []string{"shm", "tcp"} {
		for _, how := range []string{"handler", "workers", "any", "one", "batch"} {
			t.Run(fabric+"/"+how, func(t *testing.T) {
				t.Parallel()
				for range testutil.Times(4) {
					e, child := openParent(t, fabric, doomed)
					ctx := testutil.Context(t, testutil.Limit)
					var got []uint32
					note := func(b []byte) {
						if got = append(got, binary.LittleEndian.Uint32(b)); len(got) == 200 {
							child.Kill()
						}
					}
					switch how {
					case "handler", "workers":
						o := HandlerOptions{}
						if how == "workers" {
							o.Workers = 1
						}
						h, err := e.HandleWith(o, func(_ Envelope, parts [][]byte) { note(parts[0]) })
						require.NoError(t, err)
						require.Equal(t, "going", child.Line(t, testutil.Limit))
						_, err = e.RecvTag(9, nil).Wait(ctx)
						require.ErrorIs(t, err, ErrNoSender)
						h.Close()
					case "batch":
						var b RecvBatch
						for range 8 {
							b.AddTags(Tags{Ignore: ^uint32(0)}, make([]byte, 2<<20))
						}
						var err error
						for err == nil {
							err = b.Recv(e.Peer(1)).Wait(ctx)
							failed := false
							for i := range b.Len() {
								_, failure := b.Got(i)
								if failure == nil {
									require.False(t, failed)
									note(b.b.Slots[i].Buf)
									continue
								}
								failed = true
								require.ErrorIs(t, failure, ErrPeerGone)
							}
							require.Equal(t, err != nil, failed)
						}
						require.ErrorIs(t, err, ErrPeerGone)
					default:
						var reqs [8]RecvRequest
						var bufs [8][]byte
						for i := range bufs {
							bufs[i] = make([]byte, 2<<20)
						}
						post := func(i int) { reqs[i%8] = e.Peer(1).Recv(bufs[i%8]) }
						if how == "any" {
							post = func(i int) { reqs[i%8] = e.Recv(bufs[i%8]) }
						}
						for i := range reqs {
							post(i)
						}
						failed := 0
						for i := 0; failed < 8; i++ {
							_, err := reqs[i%8].Wait(ctx)
							if err == nil {
								require.Zero(t, failed)
								note(bufs[i%8])
								post(i)
								continue
							}
							failed++
							var pe *PeerError
							require.ErrorAs(t, err, &pe)
							if how == "any" {
								require.ErrorIs(t, err, ErrNoSender)
							}
							require.ErrorIs(t, err, ErrPeerGone)
						}
					}
					require.GreaterOrEqual(t, len(got), 200)
					for i := range got {
						require.EqualValues(t, i, got[i], "%v", got[max(0, i-3):])
					}
					require.NotErrorIs(t, child.Wait(testutil.Limit), testutil.ErrStillRunning)
				}
			})
		}
	}
}
