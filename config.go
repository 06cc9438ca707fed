package rma

import (
	"log/slog"
	"net/netip"
	"time"

	"github.com/seed33544411/rma/internal/bringup"
	"github.com/seed33544411/rma/internal/links"
	"github.com/seed33544411/rma/logp"
	"github.com/seed33544411/rma/sampling"
)

// Config configures an engine. Nil and the zero value are usable: a zero field means its
// default. Open takes a copy.
//
// Environment variables and a settings file override the fields, so that a program can run
// with other settings without a change. docs/configuration.md lists all settings under the
// same names, with their units and bounds and the reason for each default.
type Config struct {
	// Job is the job to join. Nil means the one in the environment, or rank 0 of 1.
	Job *Job

	// File is a settings file, with lines "name = value". RMA_CONFIG overrides it. Empty:
	// none. The file must exist.
	File string

	// Settings holds settings by name, as in a settings file, for example
	// {"ibv_gid_index": "3"}; most have no field here. If one does, the name overrides the
	// field.
	Settings map[string]string

	// Fabric is the only kind of link to use. RMA_FABRIC overrides it. Empty or FabricAuto:
	// for each peer the best link that both sides have, which is shared memory on one host,
	// RDMA between hosts, and TCP otherwise.
	Fabric Fabric

	// Bind is the address that the TCP link listens on. RMA_TCP_BIND overrides it. Zero:
	// the loopback address in a job of one host, else the address by which the job's server
	// is reached, or all interfaces if that is not known.
	Bind netip.Addr

	// Device is the RDMA device. RMA_IBV_DEVICE overrides it. Empty: the first
	// usable one; most hosts have one.
	Device string

	// Rails are further connections with each peer, over which large puts, gets and messages
	// are divided: up to three of the kind of link that connects the ranks of different hosts,
	// separated by commas. TCP: an address of this host, a network (10.1.0.0/16) or an
	// interface (eth1); RDMA: DEVICE or DEVICE:PORT. A rail that cannot be connected, or
	// fails, is not used. With rails, the loss of the first connection fails no operation,
	// except atomics over RDMA (ErrLostResult; fabric.ErrNotSupported once it has gone to TCP). RMA_RAILS overrides it. Empty: none. See docs/rails.md.
	Rails string

	// Mode sends all messages in one mode, where the mode can carry them. RMA_MODE
	// overrides it. Empty or ModeAuto: the cheapest mode for each batch, by the cost model;
	// no single mode is best for all batches.
	Mode Mode

	// ModeTable chooses the modes of messages by their size and number instead of the cost
	// model, with a table for each kind of link: "shm:1x4K=eager,4K=gather,*=scatter". The
	// first row [COUNTx]SIZE[@FIRST]=MODE that matches decides; docs/model.md describes the
	// table. Messages without a row, or that its mode cannot carry, use the cheapest mode.
	// Mode overrides it. RMA_MODE_TABLE overrides it. Empty: no table.
	ModeTable string

	// Pieces sends all puts and gets of several pieces in one way, where that way can carry
	// them. RMA_PIECES overrides it. Empty or PiecesAuto: the cheapest way for each
	// operation, by the cost model.
	Pieces Pieces

	// Sampling is the source of the cost model's parameters of a link. RMA_SAMPLING
	// overrides it. Empty: SamplingCached. One pair of ranks measures each kind of link at
	// the first start; all later starts use the result.
	Sampling Sampling

	// SamplingBudget bounds the time to measure one kind of link, from 2 ms to 10 s.
	// RMA_SAMPLING_BUDGET overrides it. Zero: 50 ms, little compared with the start of a
	// job. For a slow link a larger budget gives better parameters; it is spent once, because
	// the result is saved.
	SamplingBudget time.Duration

	// PathBudget bounds the time to measure the path to a class of peers other than that of
	// the first pair: peers at another distance in the caches of a host or, with TCP, in the
	// network. Two ranks measure such a path in the background after their first contact,
	// once for all peers of the class, over a separate connection, and save the result;
	// until then the engine uses the parameters of the nearest class. Paths with round trips
	// of milliseconds need this time; for others SamplingBudget applies. Negative: only the
	// first pair measures. RMA_PATH_BUDGET overrides it. Zero: 5 s, most of which the two
	// ranks sleep.
	PathBudget time.Duration

	// PathBytes bounds the bytes that measuring such a path moves, in both directions
	// together. RMA_PATH_BYTES overrides it. Zero: 32 MiB, which times a few operations of
	// each size up to 1 MiB.
	PathBytes int

	// Learn is the interval at which the engine times a message, to compare the link with
	// its measured parameters: one in so many messages that are sent alone is timed, and a
	// planned batch counts as four messages. The timings adjust the choice of modes.
	// Negative: never; SamplingOff disables it as well. RMA_LEARN overrides it. Zero: 256,
	// which costs 2 ns per message.
	Learn int

	// Profiles is the directory of saved measurements. RMA_PROFILES overrides it. Empty: the
	// directory rma in the user's cache directory, because measurements belong to the
	// machine and not to a program.
	Profiles string

	// Depth is the number of requests that may be in flight with one peer, at most 65536;
	// values below 16 mean 16. RMA_DEPTH overrides it. Zero: 256, which covers the
	// bandwidth-delay product of every link measured; more costs memory for each peer, less
	// stalls streams of small operations.
	Depth int

	// Outstanding bounds the operations with one peer that are posted and not complete,
	// without receives; at least 16. The bound for all peers together is four times as
	// large. An operation beyond it fails with ErrBusy. Negative: no bound. RMA_OUTSTANDING
	// overrides it. Zero: 262144, which take less than 0.5 GB. Barriers do not count, and
	// messages and signals of libraries (see LibraryTags) have a bound of their own, which is as large
	// and at least 262144: operations that are left incomplete do not stop them.
	Outstanding int

	// PinnedLimit is the number of bytes of unregistered application memory that each link
	// keeps pinned and registered between messages; negative: none. RMA_PINNED_LIMIT
	// overrides it. Zero: 64 MiB, a window of 16 messages of 4 MiB. The garbage collector
	// cannot reclaim this memory, see Engine.Invalidate.
	PinnedLimit int

	// RingMemory makes the rings for messages small at first: the first rings of a peer that
	// messages are exchanged with, with their copies at the sender, then take 16 KiB, and grow
	// and shrink with the traffic. It bounds the bytes of the grown ones, for all peers
	// together. When it is used up, peers without traffic for a second lose their
	// grown rings; meanwhile senders wait for credit, or announce their messages. Until a
	// ring has grown, messages longer than 1.7 KB are announced: their sends are complete
	// only when the peer has a receive for them. RMA_RING_MEMORY overrides it. Zero: 128 MiB
	// in jobs of more than 64 ranks. In smaller ones each peer that messages are exchanged
	// with gets rings of 512 KiB at once, 1 MiB with the copy (with more than 16 ranks, pages
	// of rings over tcp, and of copies over tcp and shm, come with their use), and only rings
	// on paths that have more in flight grow, by 128 MiB for all peers together.
	RingMemory int

	// RingLimit bounds the bytes of a ring that has grown; at least 64 KiB. Rings grow beyond
	// 512 KiB only on paths that have more in flight. RMA_RING_LIMIT overrides it. Zero: 16
	// MiB, enough for a round trip of 10 ms at 800 MB/s.
	RingLimit int

	// Adverts is the number of receives that are advertised to each peer before their
	// messages arrive, so that large messages are written into place instead of being
	// fetched; negative: none. RMA_ADVERTS overrides it. Zero: 16, as many as links keep
	// reads in flight.
	Adverts int

	// Spin is the number of polls before a wait yields the processor; negative: none.
	// RMA_SPIN overrides it. Zero: Open chooses it by the ranks and processors of the host,
	// and waits do not spin while other threads want the processor.
	Spin int

	// Yields is the number of times that a wait yields the processor before it sleeps;
	// negative: once. RMA_YIELDS overrides it. Zero: Open chooses it by the ranks and
	// processors of the host. Setting Spin or Yields disables the adaptation to other load:
	// with Yields of 1 << 24 waits practically never sleep, with -1 for both they sleep after
	// one yield.
	Yields int

	// PeerTimeout bounds the time in which a link detects that a peer is gone, at least 1
	// ms. RMA_PEER_TIMEOUT overrides it. Zero: 2 s, longer than the pauses of a busy
	// process, and short for a waiting user.
	PeerTimeout time.Duration

	// HangTimeout is how long a peer with pending operations may make no progress, because
	// its process is stopped, starved or stuck, before the operations fail with
	// ErrPeerHung; at least 100 ms. Negative: no bound. Each rank applies its own value.
	// RMA_HANG_TIMEOUT overrides it. Zero: 1 minute, longer than the interruptions by
	// overloaded hosts, debuggers and migrations of virtual machines from which a process
	// recovers.
	HangTimeout time.Duration

	// SetupTimeout bounds Open, Barrier and the other collective calls if their context has
	// no deadline, and the time to connect with a peer. Negative: no bound. RMA_TIMEOUT overrides it. Zero: 2 minutes, longer
	// than the start of a large job on a loaded machine takes.
	SetupTimeout time.Duration

	// Logger receives the events that docs/observability.md lists, such as the choice of
	// links (debug) and the loss of peers (warn). Nil: nothing is logged, unless RMA_LOG
	// asks for a text log on standard error.
	Logger *slog.Logger
}

// Fabric is a kind of link between two ranks.
type Fabric string

// Kinds of links.
const (
	FabricAuto  Fabric = "auto"  // the best that both ranks have
	FabricSHM   Fabric = "shm"   // shared memory, between ranks of one host
	FabricTCP   Fabric = "tcp"   // TCP sockets
	FabricVerbs Fabric = "verbs" // RDMA adapters
)

// Mode is a way to transfer messages.
type Mode string

// Modes of messages.
const (
	ModeAuto    Mode = "auto"    // the cheapest for each batch, by the cost model
	ModeEager   Mode = "eager"   // each by itself through the peer's ring
	ModeGather  Mode = "gather"  // several together in one write to the peer's ring
	ModeScatter Mode = "scatter" // announced together, and read by the peer from where they lie: rendezvous by RDMA Read
)

// Pieces is a way to perform puts and gets of several pieces: PutV, GetV, PutStrided,
// GetStrided, and those of a Batch.
type Pieces string

// Ways of pieces.
const (
	PiecesAuto  Pieces = "auto"  // the cheapest, by the cost model
	PiecesChain Pieces = "chain" // one write or read of the link for each piece
	PiecesGroup Pieces = "group" // one request for all, which the target's engine carries out
)

// Sampling is the source of the cost model's parameters of a link.
type Sampling string

// Sources of the cost model's parameters.
const (
	SamplingCached Sampling = "cached" // a saved measurement that is still valid, otherwise a new one
	SamplingForce  Sampling = "force"  // a new measurement
	SamplingOff    Sampling = "off"    // no measurement: default parameters for the kind of link
)

// wholeRings is the most ranks of a job whose rings for messages have their default size at once. In
// a larger job, where that takes up to 1 MiB for each rank, they are small at first.
const wholeRings = 64

// readyRings is the most ranks of a job whose rings are in memory before they are used. In a larger
// one the pages of each ring, up to 1 MiB a peer, come as messages use them, where the link neither
// allocates nor pins them: the first messages of a peer then wait for page faults, but a rank that
// has a few messages for each of many peers would otherwise wait for memory that it never uses.
const readyRings = 16

// smallRings reports whether rings for messages are small at first, in a job of that many ranks.
func (c *Config) smallRings(size int) bool { return c.RingMemory > 0 || size > wholeRings }

// policy returns the policy for Mode and ModeTable, which are valid, on a link.
func (c *Config) policy(link string) (p logp.Policy) {
	if c.Mode != "" && c.Mode != ModeAuto {
		p.Forced = true
		p.Mode, _ = logp.ParseMode(string(c.Mode))
		return p
	}
	t, _ := links.ModeTables(c.ModeTable)
	p.Table = t.For(links.Kind(link))
	return p
}

// pieces returns the way that Pieces, which is valid, demands.
func (c *Config) pieces() (forced bool, w logp.Way) {
	if c.Pieces == PiecesGroup {
		w = logp.Group
	}
	return c.Pieces != "" && c.Pieces != PiecesAuto, w
}

// learns returns message.Options.Learn: there is no learning without measured parameters to
// compare with.
func (c *Config) learns() int {
	if c.Sampling == SamplingOff {
		return 0
	}
	return c.Learn
}

// bringup returns the configuration for opening and measuring links.
func (c *Config) bringup(o links.Options) bringup.Config {
	mode, _ := sampling.ParseMode(string(c.Sampling)) // it is valid
	return bringup.Config{
		Options: o, Fabric: string(c.Fabric), Depth: c.Depth, PeerTimeout: c.PeerTimeout, SetupTimeout: c.SetupTimeout,
		Sampling: mode, Budget: c.SamplingBudget, Profiles: c.Profiles, PathBudget: c.PathBudget, PathBytes: int64(c.PathBytes), Spin: c.Spin, Yields: c.Yields, Log: c.Logger,
	}
}

// minDepth is the smallest depth that a message channel works with.
const minDepth = 16

// Job names a job and this process's rank, for programs that no launcher has started.
type Job struct {
	Rank, Size int

	// Root is the address of the wire-up server: "unix:/path" or "host:port".
	Root string

	// Token is the secret shared by the server and all ranks: at least 16 bytes, unless
	// Root is a Unix socket and all ranks run as one user, or RMA_INSECURE=1 is set.
	Token []byte

	// Serve runs the server in this process, at Root. Set it on one rank of a job that has
	// no other server. Close then waits until the other ranks have left, up to
	// SetupTimeout.
	Serve bool
}
