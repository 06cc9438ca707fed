package coll

import (
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/internal/testutil"
	"github.com/seed33544411/rma/sampling"
)

// byRecords opens a job of ranks 0 and 2 on a host and 1 and 3 on another one, whose leader is 1.
func byRecords(t *testing.T) ([]*rma.Engine, []*Team) {
	es := hostJob(t, 4, func(r int) string { return fmt.Sprint("host ", r%2) })
	ts := worlds(t, es)
	for _, team := range ts {
		require.NoError(t, team.Force("gatherv=hierarchy,scatterv=hierarchy,alltoallv=hierarchy,barrier=hierarchy"))
	}
	return es, ts
}

// Persistent operations by records have the result of their memory at each start: all blocks in records, some of them,
// or none.
func TestPersistentRecords(t *testing.T) {
	_, ts := byRecords(t)
	ctx := testutil.Context(t, testutil.Limit)
	for _, n := range []int{0, 1, recordMaxAll / 8, recordMax / 8, 700} {
		for _, root := range []int{0, 3} {
			each(t, ts, func(_ int, team *Team) error {
				if err := startAll(ctx, team, root, n); err != nil {
					return fmt.Errorf("%d elements, root %d: %w", n, root, err)
				}
				return nil
			})
		}
	}
	for _, n := range []int{1, recordMaxAll/8 + 1} { // of which an Alltoallv sends the second directly
		requireNoAllocation(t, ts, n, "gather with lengths", "scatter with lengths", "alltoall with lengths")
	}
}

// The root finds lengths that differ from those of other ranks, and they those that differ from the
// root's, although all pass a leader that knows none, and their sum is right.
func TestRecordsOfAnotherLength(t *testing.T) {
	const far = recordMax/8 + 1 // goes directly
	for name, x := range map[string]struct{ calls, root [4]int }{
		"shorter":       {[4]int{1, 2, 3, 4}, [4]int{1, 2, 3, 5}},
		"longer":        {[4]int{1, 2, 3, 4}, [4]int{1, 2, 3, 3}},
		"two":           {[4]int{1, 2, 3, 4}, [4]int{1, 1, 3, 5}},
		"none":          {[4]int{1, 2, 3, 4}, [4]int{1, 2, 3, 0}},
		"directly":      {[4]int{1, 2, 3, far}, [4]int{1, 2, 3, 5}},
		"not directly":  {[4]int{1, 2, 3, 4}, [4]int{1, 2, 3, far}},
		"both directly": {[4]int{1, 2, 3, far}, [4]int{1, 2, 3, far + 1}},
	} {
		for _, k := range []kind{kindGatherv, kindScatterv, kindAlltoallv} {
			t.Run(fmt.Sprint(k, " ", name), func(t *testing.T) {
				t.Parallel()
				_, ts := byRecords(t)
				ctx := testutil.Context(t, testutil.Limit)
				each(t, ts, func(r int, team *Team) (err error) {
					all, mine := make([][]int64, 4), make([]int64, x.calls[r])
					for r, n := range x.root {
						all[r] = make([]int64, n)
					}
					switch k {
					case kindGatherv:
						err = Gatherv(ctx, team, 0, mine, all)
					case kindScatterv:
						err = Scatterv(ctx, team, 0, all, mine)
					default: // all but 0 receive from 0, and it from them
						send, recv := [][]int64{mine, {}, {}, {}}, [][]int64{mine, {}, {}, {}}
						if r == 0 {
							send, recv = all, all
						}
						err = Alltoallv(ctx, team, send, recv)
					}
					if err == nil {
						err = Barrier(ctx, team)
					}
					var m *MismatchError
					if !errors.As(err, &m) {
						return fmt.Errorf("no mismatch: %v", err)
					}
					if (m.Ranks[0] == 0) == (m.Ranks[1] == 0) || name != "two" && m.Ranks[0]+m.Ranks[1] != 3 {
						return fmt.Errorf("of other ranks: %w", err)
					}
					return nil
				})
			})
		}
	}
}

// A rank that sends what are no records ends the team.
func TestNoRecords(t *testing.T) {
	length := func(n uint64) []byte { return binary.LittleEndian.AppendUint64(nil, n) }
	for name, bad := range map[string][]byte{
		"nothing":  {},
		"short":    make([]byte, recordHead-1),
		"less":     append(length(9), make([]byte, 8)...),
		"more":     append(length(9), make([]byte, 10)...),
		"directly": append(length(recordMax+1), make([]byte, 8)...),
		"two":      append(length(0), length(0)...),
		"huge":     append(length(1<<64-1), 0),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			es, ts := byRecords(t)
			ctx := testutil.Context(t, testutil.Limit)
			each(t, ts, func(r int, team *Team) error {
				if r == 3 {
					h := header{call: call{kind: kindGatherv, elem: reflect.Int64, alg: algHierarchy, size: 8}, bytes: uint64(len(bad))}
					b := make([]byte, headerSize)
					h.put(b)
					if err := es[3].Peer(1).SendTag(tagData, append(b, bad...)).Wait(ctx); err != nil {
						return err
					}
				} else if err := Gatherv(ctx, team, 0, []int64{1}, [][]int64{{0}, {0}, {0}, {0}}); err == nil && r != 2 {
					return errors.New("it is complete")
				}
				err := Barrier(ctx, team)
				var pe *rma.PeerError
				if !errors.As(err, &pe) || pe.Rank != 3 || !errors.Is(err, ErrProtocol) {
					return fmt.Errorf("the barrier: %v", err)
				}
				return nil
			})
		})
	}
}

// A leader that is lost ends operations with records on all ranks; those that live go on without it.
func TestLeaderIsLost(t *testing.T) {
	for _, k := range []kind{kindGatherv, kindScatterv} {
		t.Run(k.String(), func(t *testing.T) {
			t.Parallel()
			es, ts := byRecords(t)
			ctx := testutil.Context(t, testutil.Limit)
			each(t, ts, func(_ int, team *Team) error { return conform(ctx, team, 3, 5, 1) })
			each(t, ts, func(r int, team *Team) (err error) {
				if r == 1 {
					return es[1].Close()
				}
				all := [][]int64{{0}, {0}, {0}, {0}}
				if k == kindGatherv {
					err = Gatherv(ctx, team, 0, all[r], all)
				} else {
					err = Scatterv(ctx, team, 0, all, make([]int64, 1))
				}
				if err == nil {
					err = Barrier(ctx, team)
				}
				var pe *rma.PeerError
				if !errors.As(err, &pe) || pe.Rank != 1 || !errors.Is(err, rma.ErrPeerGone) || !errors.Is(err, ErrRevoked) {
					return fmt.Errorf("%v", err)
				}
				rest, err := team.Shrink(ctx)
				if err != nil {
					return err
				}
				return conform(ctx, rest, 1, 5, 1)
			})
		})
	}
}

// Blocks are packed up to the size for which the prediction says that it takes less time.
func TestPacking(t *testing.T) {
	near, far := sampling.Defaults("shm"), sampling.Defaults("tcp")
	numbers := make([]int, 48)
	for r := range numbers {
		numbers[r] = r / 8
	}
	h := divide(numbers)
	f := figuresOf(&far, false, memoryRates{})
	f.hosts, f.near = h, costsOf(&near, true, memoryRates{})
	team := &team{s: &service{}, hosts: h}
	for _, k := range []kind{kindGatherv, kindScatterv, kindAlltoallv} {
		pr := &problem{call: call{kind: k, size: 8}, team: len(numbers)}
		_, ok := team.chooseBy(nil, pr, 0)
		require.False(t, ok, "by figures")
		a, ok := team.chooseBy(f, pr, 0)
		require.True(t, ok)
		require.Equal(t, algHierarchy, a)
		require.Positive(t, pr.most)
		most := pr.most
		c := call{kind: k, size: 1}
		require.True(t, f.packs(c, len(numbers), most))
		if most < k.records() {
			require.False(t, f.packs(c, len(numbers), 2*most))
		}
		pr.most = 0
		_, _ = team.chooseBy(f, pr, 0)
		require.Equal(t, most, pr.most, "as answered before")
		force := map[kind]algorithm{k: algHierarchy}
		team.force.Store(&force)
		_, _ = team.chooseBy(f, pr, 0)
		require.Equal(t, k.records(), pr.most)
		team.force.Store(nil)
	}
}

func FuzzRecords(f *testing.F) {
	f.Add(append(binary.LittleEndian.AppendUint64(nil, 3), 1, 2, 3), int32(1), 8)
	f.Add(binary.LittleEndian.AppendUint64(nil, 1<<63), int32(1), 8)
	f.Fuzz(func(t *testing.T, b []byte, n int32, most int) {
		n, most = n&0xff, most&recordMax
		end := skipRecords(b, n, most)
		require.LessOrEqual(t, end, len(b))
		if end >= 0 && n > 0 {
			require.Equal(t, end, skipRecords(b, n-1, most)+len(findRecords(b, n-1, 1, most)))
		}
	})
}
