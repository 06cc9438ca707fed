package rma

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"time"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/links"
	"github.com/seed33544411/rma/internal/wireup"
	"github.com/seed33544411/rma/logp"
	"github.com/seed33544411/rma/sampling"
)

// Config configures an engine. The zero value, and nil, are usable. Open takes
// a copy. Environment variables (docs/environment.md) have the last word.
type Config struct {
	// Job is the job to join. Nil: the one in the environment, or rank 0 of 1.
	Job *Job

	// Fabric is the only kind of link to use: "shm", "tcp" or "verbs". Empty
	// or "auto": the best that both sides have. RMA_FABRIC overrides it.
	Fabric string

	// Bind is the address that the TCP link listens on. Zero: the loopback
	// address in a job of one host, else all interfaces.
	Bind netip.Addr

	// Device is the RDMA device. Empty: the first usable one.
	Device string

	// Mode sends all messages one way, where it can carry them: "eager",
	// "gather" or "scatter". Empty or "auto": the cheapest way for each batch.
	// RMA_MODE overrides it.
	Mode string

	// Sampling says where the cost model's figures of a link come from: "cached",
	// a saved measurement, or a new one where there is none that is valid; "force",
	// a new one; "off", figures of the kind of link. Empty means "cached".
	// Measuring takes 50 ms at the first start, by one pair of ranks for each
	// kind of link. RMA_SAMPLING overrides it.
	Sampling string

	// Profiles is the folder of saved measurements. Empty: rma in the user's
	// cache directory. RMA_PROFILES overrides it.
	Profiles string

	// Depth is how many requests may be under way with one peer. Zero means
	// fabric.DefaultDepth (256); less than 16 means 16.
	Depth int

	// PeerTimeout bounds how long a link may take to notice that a peer is
	// gone. Zero means fabric.DefaultPeerTimeout (2 s).
	PeerTimeout time.Duration

	// SetupTimeout bounds Open, and Barrier, where the context has no
	// deadline. Zero means 2 minutes; negative waits for ever.
	SetupTimeout time.Duration

	// Logger gets the links chosen (debug) and peers lost (warn). Nil: nothing
	// is logged.
	Logger *slog.Logger
}

// Environment variables that override Config.
const (
	EnvMode     = "RMA_MODE"
	EnvSampling = "RMA_SAMPLING"
	EnvProfiles = "RMA_PROFILES"
)

// policy is what Mode asks for. The mode is valid.
func (c *Config) policy() (p logp.Policy) {
	if c.Mode != "" && c.Mode != "auto" {
		p.Forced = true
		p.Mode, _ = logp.ParseMode(c.Mode)
	}
	return p
}

// minDepth is what a message channel needs at least.
const minDepth = 16

// Job names a job and this process's place in it, for programs that are not
// started by rmarun.
type Job struct {
	Rank, Size int

	// Root is the address of the rendezvous server: "unix:/path" or "host:port".
	Root string

	// Token is the secret shared by the server and all ranks.
	Token []byte
}

// effective is the copy of c that an engine works with.
func (c *Config) effective() (Config, links.Options, wireup.Config, error) {
	var d Config
	if c != nil {
		d = *c
	}
	fail := func(err error) (Config, links.Options, wireup.Config, error) {
		return d, links.Options{}, wireup.Config{}, err
	}
	if d.Depth < 0 || d.Depth > 1<<16 {
		return fail(fmt.Errorf("config: depth %d, want 0 … %d", d.Depth, 1<<16))
	}
	if d.Depth == 0 {
		d.Depth = fabric.DefaultDepth
	}
	d.Depth = max(d.Depth, minDepth)
	if d.PeerTimeout < 0 {
		return fail(fmt.Errorf("config: negative peer time-out %v", d.PeerTimeout))
	}
	if d.PeerTimeout == 0 {
		d.PeerTimeout = fabric.DefaultPeerTimeout
	}
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	for name, field := range map[string]*string{EnvMode: &d.Mode, EnvSampling: &d.Sampling, EnvProfiles: &d.Profiles} {
		if v := os.Getenv(name); v != "" {
			*field = v
		}
	}
	if d.Sampling == "" {
		d.Sampling = sampling.Cached.String()
	}
	if _, err := sampling.ParseMode(d.Sampling); err != nil {
		return fail(fmt.Errorf("config: sampling %q: want cached, force or off", d.Sampling))
	}
	if d.Mode != "" && d.Mode != "auto" {
		if _, err := logp.ParseMode(d.Mode); err != nil {
			return fail(fmt.Errorf("config: mode %q: want auto, eager, gather or scatter", d.Mode))
		}
	}
	forced, o, err := links.FromEnv(links.Options{Bind: d.Bind, Device: d.Device})
	if err != nil {
		return fail(err)
	}
	if forced == "" {
		if forced, err = links.Canonical(d.Fabric); err != nil {
			return fail(err)
		}
	}
	d.Fabric, d.Bind = forced, o.Bind
	w, err := wireup.FromEnv()
	if d.Job != nil {
		w, err = wireup.Config{Rank: d.Job.Rank, Size: d.Job.Size, Root: d.Job.Root, Token: d.Job.Token}, nil
	}
	if err != nil {
		return fail(err)
	}
	if d.SetupTimeout != 0 {
		w.Timeout = d.SetupTimeout
	}
	return d, o, w, nil
}
