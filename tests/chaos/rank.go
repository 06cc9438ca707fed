//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/seed33544411/rma"
	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/offheap"
)

// workEnv holds a rank's work; its presence makes the process a rank.
const workEnv = "CHAOS_WORK"

// work describes the work of a rank.
type work struct {
	Ops  []string // names of traffic
	Seed uint64
	Max  int // bytes of the largest message and put

	ShowKeys bool // report them to the campaign, which looks for them where they must not be

	// Mutant is the number of writes to peers for each one that the last rank changes; 0: it
	// is as honest as the others.
	Mutant int  `json:",omitempty"`
	Lies   bool `json:",omitempty"` // this rank is the mutant
}

// event is a line that a rank reports.
//
//	ready            the job is open, traffic begins
//	fail   op peer   an operation ended in an error: kind, text, at
//	on     op peer   after a mark, an operation with that peer was completed
//	bad              a promise, kind, is broken: text
//	held   op        a promise was checked n times
//	count  op        n operations were completed
//	key              the beginning of a key: text
//	back             a rail that was lost is in use again, after at
//	across           operations took at, and a rail was lost, or its interface went down or up, meanwhile
//	settled          all rails are in use
//	late             they are not for long: text
//	p99    op        latency, at, of probes since the phase, op, began
//	closed           the engine is, after at
type event struct {
	Ev   string
	Op   string        `json:",omitempty"`
	Peer int           `json:",omitempty"`
	Kind string        `json:",omitempty"`
	Text string        `json:",omitempty"`
	N    int           `json:",omitempty"`
	At   time.Duration `json:",omitempty"` // on the system's monotonic clock
}

// rank is this process as a rank.
type rank struct {
	work
	eng  *rma.Engine
	mem  *rma.Region // others write to it: a slot for each
	src  *rma.Region // source of sent data
	keys []rma.Key

	guard   *guards         // beside a mutant
	changes atomic.Int64    // changes that a mutant has made
	ctx     context.Context // until the campaign sends "end"
	stop    context.CancelFunc
	tasks   sync.WaitGroup

	checks [promised]atomic.Int64

	latency   latency
	railWatch railWatch
	mark      atomic.Int64 // number of marks; the peer that is left out in the low bits
	out       sync.Mutex
	enc       *json.Encoder
}

// runRank is a rank's main.
func runRank(spec string) error {
	k := &rank{enc: json.NewEncoder(os.Stdout)}
	if err := json.Unmarshal([]byte(spec), &k.work); err != nil {
		return err
	}
	k.ctx, k.stop = context.WithCancel(context.Background())
	defer k.stop()
	if ln, err := net.Listen("tcp", "127.0.0.1:0"); err == nil { // the runtime's poller stays open
		ln.Close()
	}
	before := census()
	if err := k.open(); err != nil {
		k.say(event{Ev: "fail", Op: "open", Peer: -1, Kind: kind(err), Text: err.Error(), At: now()})
		return fmt.Errorf("open: %w", err)
	}
	go k.commands()
	if k.ShowKeys {
		for _, key := range k.keys {
			if b, err := key.MarshalBinary(); err == nil {
				k.say(event{Ev: "key", Text: hex.EncodeToString(b[:16])})
			}
		}
	}
	k.say(event{Ev: "ready", At: now()})
	k.traffic()
	if k.Lies {
		<-k.ctx.Done()
		k.say(event{Ev: "count", Op: "writes changed", N: int(k.changes.Load())})
		os.Exit(0) // it has no promises to keep
	}
	k.tasks.Wait()
	start := now()
	written := slices.Contains(k.Ops, "close") // by a peer that does not know of the end yet, perhaps
	k.guard.check(k)
	if err := k.eng.Close(); err != nil && !(written && errors.Is(err, rma.ErrInUse)) && !k.silent(err) {
		k.bad(ends, "close: %v", err)
	}
	k.held(ends)
	k.say(event{Ev: "closed", At: now() - start})
	k.leaks(before)
	for p := range promised {
		k.say(event{Ev: "held", Op: p.String(), N: int(k.checks[p].Load())})
	}
	return nil
}

// slot returns the size of the area in a rank's memory for another rank's operations.
func (k *rank) slot() int { return 2*k.Max + 4096 }

func (k *rank) open() (err error) {
	if k.Mutant > 0 {
		return k.openBesideMutant()
	}
	if k.eng, err = rma.Open(k.ctx, nil); err != nil {
		return err
	}
	n := k.eng.Size()
	for _, m := range []**rma.Region{&k.mem, &k.src} {
		if *m, err = k.eng.Alloc(n * k.slot()); err != nil {
			return err
		}
	}
	k.fillOwn()
	k.keys, err = rma.AllGatherKeys(k.ctx, k.eng, k.mem)
	return err
}

// commands reads the campaign's commands; at their end the rank ends.
func (k *rank) commands() {
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		word, arg, _ := strings.Cut(in.Text(), " ")
		switch word {
		case "mark":
			peer, _ := strconv.Atoi(arg)
			k.mark.Store((k.mark.Load()>>16+1)<<16 | int64(peer&0xffff))
		case "phase":
			k.phase(arg)
		case "cut":
			k.cut(strings.Fields(arg))
		case "interface":
			rail, state, _ := strings.Cut(arg, " ")
			k.railWatch.changed(rail, state == "up")
		case "settle":
			k.railWatch.settle.Add(1)
		case "end":
			k.stop()
		}
	}
	k.stop()
	time.Sleep(time.Minute)
	os.Exit(3) // the parent of this rank is gone
}

func (k *rank) say(e event) {
	k.out.Lock()
	defer k.out.Unlock()
	_ = k.enc.Encode(e)
}

// promise is a property that a rank checks of itself.
type promise int

const (
	intact    promise = iota // operations read the data that others have written
	inOrder                  // messages arrive once, in order, all of them
	untouched                // memory is its owner's alone once Region.Close has returned nil
	ends                     // Engine.Close succeeds
	flat                     // a closed engine has released everything
	typed                    // errors beside a mutant have types
	promised
)

func (p promise) String() string {
	return [...]string{"wrong data", "message lost, doubled or reordered", "write after Close of the region", "error of Engine.Close", "descriptors, goroutines or memory left", "error without a type"}[p]
}

func (k *rank) held(p promise) { k.checks[p].Add(1) }

func (k *rank) bad(p promise, format string, args ...any) {
	k.say(event{Ev: "bad", Kind: p.String(), Text: fmt.Sprintf(format, args...), At: now()})
}

// kind returns the name of the sentinel that an error wraps.
func kind(err error) string {
	for _, s := range []struct {
		name string
		err  error
	}{
		{"no sender", rma.ErrNoSender}, {"gone", rma.ErrPeerGone}, {"hung", rma.ErrPeerHung}, {"closed", rma.ErrClosed}, {"server gone", rma.ErrServerGone}, {"resources", rma.ErrResources}, {"no secret", rma.ErrNoToken},
		{"misbehaves", rma.ErrPeerMisbehaves}, {"unconnected", rma.ErrNoConnection}, {"access", rma.ErrRemoteAccess},
		{"flushed", rma.ErrFlushed}, {"invalid there", fabric.ErrRemoteInvalid}, {"not supported", fabric.ErrNotSupported}, {"failed there", fabric.ErrRemoteOp}, {"in use", rma.ErrInUse}, {"short buffer", rma.ErrShortBuffer},
		{"given up", rma.ErrGivenUp}, {"aborted", rma.ErrAborted}, {"undecided", rma.ErrUndecided}, {"out of step", rma.ErrOutOfStep},
		{"descriptors", syscall.EMFILE}, {"memory", syscall.ENOMEM},
		{"canceled", context.Canceled}, {"deadline", context.DeadlineExceeded},
	} {
		if errors.Is(err, s.err) {
			return s.name
		}
	}
	return "untyped"
}

// resources are those that a closed engine must have released.
type resources struct {
	fds, goroutines int
	memory          int64 // bytes outside the Go heap
}

func census() resources {
	return resources{len(descriptors()), runtime.NumGoroutine(), offheap.Total()}
}

// descriptors names the open ones, except those that the runtime opens at any time.
func descriptors() (names []string) {
	list, _ := os.ReadDir("/proc/self/fd")
	for _, f := range list {
		if to, _ := os.Readlink("/proc/self/fd/" + f.Name()); !strings.HasPrefix(to, "/sys/fs/cgroup/") {
			names = append(names, to)
		}
	}
	slices.Sort(names)
	return names
}

// leaks compares the resources in use now, after they have settled, with those before.
func (k *rank) leaks(before resources) {
	k.held(flat)
	var after resources
	for end := now() + 20*time.Second; now() < end; time.Sleep(20 * time.Millisecond) {
		runtime.GC()
		if after = census(); after.fds <= before.fds && after.goroutines <= before.goroutines+1 && // the reader of commands
			after.memory <= before.memory {
			return
		}
	}
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	k.bad(flat, "after close %d descriptors, %d goroutines and %d bytes, before open %d, %d and %d\n%s\n%.4000s",
		after.fds, after.goroutines, after.memory, before.fds, before.goroutines, before.memory, strings.Join(descriptors(), " "), stacks)
}
