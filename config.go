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

// Config configures an engine. The zero value, and nil, are usable: the zero
// value of every field means its default. Open takes a copy.
//
// Variables and a settings file override what is set here, so that a program can
// be run in another way without changing it; docs/configuration.md lists them all,
// with the same names, and says why each default is what it is.
type Config struct {
	// Job is the job to join. Nil: the one in the environment, or rank 0 of 1:
	// a program should not know how it was started.
	Job *Job

	// File is a settings file, with lines "name = value". RMA_CONFIG overrides
	// it. Empty: none. A file that is named must be there.
	File string

	// Settings sets by name, as in a settings file, what has no field here, such
	// as {"ibv_gid_index": "3"}. A name that is also a field overrides the field.
	Settings map[string]string

	// Fabric is the only kind of link to use. RMA_FABRIC overrides it. Empty or
	// FabricAuto: the best that both sides have; shared memory on one host, RDMA
	// between hosts, TCP where there is neither.
	Fabric Fabric

	// Bind is the address that the TCP link listens on. RMA_TCP_BIND overrides it.
	// Zero: the loopback address in a job of one host, which nobody else should
	// reach, else the address by which the job's server is reached, or all interfaces
	// where that is not known.
	Bind netip.Addr

	// Device is the RDMA device. RMA_IBV_DEVICE overrides it. Empty: the first
	// usable one; most hosts have one.
	Device string

	// Mode sends all messages one way, where it can carry them. RMA_MODE overrides
	// it. Empty or ModeAuto: the cheapest way for each batch, by the cost model; none
	// is the best for all.
	Mode Mode

	// Sampling says where the cost model's figures of a link come from. RMA_SAMPLING
	// overrides it. Empty: SamplingCached. Measuring is done at the first start, by
	// one pair of ranks for each kind of link, and pays in every batch after.
	Sampling Sampling

	// SamplingBudget bounds the time that measuring a kind of link takes, 2 ms to
	// 10 s. RMA_SAMPLING_BUDGET overrides it. Zero: 50 ms, little beside what
	// starting a job takes. Slow links gain from more, once: the result is saved.
	SamplingBudget time.Duration

	// Learn is how many messages sent alone pass between two that are timed, to find
	// out whether a link is what was measured; batches that are planned count for
	// four. What is learned moves the choice. Negative: never, nor is anything learned
	// with SamplingOff. RMA_LEARN overrides it. Zero: 256, which costs 2 ns a message.
	Learn int

	// Profiles is the folder of saved measurements. RMA_PROFILES overrides it.
	// Empty: rma in the user's cache directory: they belong to the machine, not
	// to a program.
	Profiles string

	// Depth is how many requests may be under way with one peer, at most 65536;
	// less than 16 means 16. RMA_DEPTH overrides it. Zero: 256, which covers the
	// bandwidth-delay product of every link measured; more costs memory for each
	// peer, less stalls streams of small operations.
	Depth int

	// Outstanding is how many operations with one peer may be posted and not complete,
	// receives not counted, at least 16; with all peers together it is four times as
	// many. What is posted beyond fails with ErrBusy. Negative: any number.
	// RMA_OUTSTANDING overrides it. Zero: 262144, whose memory is less than 0.5 GB.
	Outstanding int

	// PinnedLimit is how much memory, in bytes, that the application brings without
	// registering it, each link keeps pinned and registered between messages;
	// negative: none. RMA_PINNED_LIMIT overrides it. Zero: 64 MiB, a window of 16
	// messages of 4 MiB. What is kept is not garbage, see Engine.Invalidate.
	PinnedLimit int

	// Adverts is how many receives are shown to each peer before their messages
	// come, so that large ones are written where they belong and need not be
	// fetched; negative: none. RMA_ADVERTS overrides it. Zero: 16, as many as
	// links keep reads in flight.
	Adverts int

	// Spin is how many looks a wait makes before it yields the processor; negative:
	// none. RMA_SPIN overrides it. Zero: what fits the ranks and processors of the
	// host, which Open finds out.
	Spin int

	// Yields is how often a wait yields the processor before it sleeps; negative:
	// never. RMA_YIELDS overrides it. Zero: what fits the ranks and processors of
	// the host.
	Yields int

	// PeerTimeout bounds how long a link may take to notice that a peer is gone,
	// at least 1 ms. RMA_PEER_TIMEOUT overrides it. Zero: 2 s, long against a
	// pause of a busy process, short against the patience of whoever waits.
	PeerTimeout time.Duration

	// HangTimeout is how long a peer that is waited for may make no progress, because
	// its process is stopped, starved or stuck, before operations with it fail with
	// ErrPeerHung; at least 100 ms; negative: for ever. Ranks that differ in it
	// use each its own. RMA_HANG_TIMEOUT overrides it. Zero: 1 minute, long against
	// what overloaded hosts, debuggers and migrations of virtual machines do to a
	// process that goes on afterwards.
	HangTimeout time.Duration

	// SetupTimeout bounds Open, Barrier and exchanges through the job, where the
	// context has no deadline; negative waits for ever. RMA_TIMEOUT overrides it.
	// Zero: 2 minutes, long against the start of a large job on a loaded machine.
	SetupTimeout time.Duration

	// Logger gets what docs/observability.md lists: links chosen (debug), peers
	// lost (warn). Nil: nothing is logged, unless RMA_LOG asks for a text log on
	// standard error.
	Logger *slog.Logger
}

// Fabric is a kind of link between two ranks.
type Fabric string

// Kinds of links.
const (
	FabricAuto  Fabric = "auto"  // the best that both ranks have
	FabricSHM   Fabric = "shm"   // shared memory, between ranks of one host
	FabricTCP   Fabric = "tcp"   // sockets
	FabricVerbs Fabric = "verbs" // RDMA adapters
)

// Mode is a way in which messages go to their peer.
type Mode string

// Ways of messages.
const (
	ModeAuto    Mode = "auto"    // the cheapest for each batch, by the cost model
	ModeEager   Mode = "eager"   // each by itself through the peer's ring
	ModeGather  Mode = "gather"  // several together in one write to the peer's ring
	ModeScatter Mode = "scatter" // announced together, and read by the peer from where they lie: rendezvous by RDMA Read
)

// Sampling says where the cost model's figures of a link come from.
type Sampling string

// Sources of figures.
const (
	SamplingCached Sampling = "cached" // a saved measurement, or a new one where there is none that is valid
	SamplingForce  Sampling = "force"  // a new measurement
	SamplingOff    Sampling = "off"    // round figures of the kind of link
)

// policy is what Mode asks for. The mode is valid.
func (c *Config) policy() (p logp.Policy) {
	if c.Mode != "" && c.Mode != ModeAuto {
		p.Forced = true
		p.Mode, _ = logp.ParseMode(string(c.Mode))
	}
	return p
}

// learns is message.Options.Learn: figures that nobody measured are not held
// against what is.
func (c *Config) learns() int {
	if c.Sampling == SamplingOff {
		return 0
	}
	return c.Learn
}

// bringup is what links are opened and measured by.
func (c *Config) bringup(o links.Options) bringup.Config {
	mode, _ := sampling.ParseMode(string(c.Sampling)) // it is valid
	return bringup.Config{
		Options: o, Fabric: string(c.Fabric), Depth: c.Depth, PeerTimeout: c.PeerTimeout, SetupTimeout: c.SetupTimeout,
		Sampling: mode, Budget: c.SamplingBudget, Profiles: c.Profiles, Spin: c.Spin, Yields: c.Yields, Log: c.Logger,
	}
}

// minDepth is what a message channel needs at least.
const minDepth = 16

// Job names a job and this process's place in it, for programs that are not
// started by rmarun.
type Job struct {
	Rank, Size int

	// Root is the address of the wire-up server: "unix:/path" or "host:port".
	Root string

	// Token is the secret shared by the server and all ranks: at least 16 bytes,
	// unless Root is a Unix socket and all ranks are of one user. RMA_INSECURE=1
	// does without.
	Token []byte

	// Serve runs the server in this process, at Root: on one rank of a job
	// that nothing else serves. Close then waits until the other ranks have
	// left, up to SetupTimeout.
	Serve bool
}
