package rma

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"strconv"
	"time"

	"github.com/seed33544411/rma/internal/jobenv"
	"github.com/seed33544411/rma/internal/links"
	"github.com/seed33544411/rma/internal/settings"
	"github.com/seed33544411/rma/internal/wireup"
)

// Variables of settings that only this package uses.
const (
	envMode        = "RMA_MODE"
	envPieces      = "RMA_PIECES"
	envSampling    = "RMA_SAMPLING"
	envBudget      = "RMA_SAMPLING_BUDGET"
	envPathBudget  = "RMA_PATH_BUDGET"
	envPathBytes   = "RMA_PATH_BYTES"
	envLearn       = "RMA_LEARN"
	envProfiles    = "RMA_PROFILES"
	envDepth       = "RMA_DEPTH"
	envOutstanding = "RMA_OUTSTANDING"
	envPinned      = "RMA_PINNED_LIMIT"
	envAdverts     = "RMA_ADVERTS"
	envRingMemory  = "RMA_RING_MEMORY"
	envRingLimit   = "RMA_RING_LIMIT"
	envSpin        = "RMA_SPIN"
	envYields      = "RMA_YIELDS"
	envPeerTimeout = "RMA_PEER_TIMEOUT"
	envHangTimeout = "RMA_HANG_TIMEOUT"
	envLog         = "RMA_LOG" // the text log of programs without Config.Logger
)

// field associates a field of Config with its setting.
type field struct {
	env string // the setting's variable
	get func() string
	set func(*settings.Values)
}

// fields lists the fields of c that are settings. A test compares them with Config and with
// the registry.
func (c *Config) fields() []field {
	return []field{
		textField(settings.EnvConfig, &c.File),
		textField(links.EnvFabric, &c.Fabric),
		{links.EnvBind, func() string {
			if c.Bind == (netip.Addr{}) {
				return ""
			}
			return c.Bind.String()
		}, func(v *settings.Values) { c.Bind = v.Addr(links.EnvBind) }},
		textField(links.EnvDevice, &c.Device),
		textField(links.EnvRails, &c.Rails),
		textField(envMode, &c.Mode),
		textField(links.EnvModeTable, &c.ModeTable),
		textField(envPieces, &c.Pieces),
		textField(envSampling, &c.Sampling),
		durationField(envBudget, &c.SamplingBudget),
		durationField(envPathBudget, &c.PathBudget),
		intField(envPathBytes, &c.PathBytes),
		intField(envLearn, &c.Learn),
		textField(envProfiles, &c.Profiles),
		intField(envDepth, &c.Depth),
		intField(envOutstanding, &c.Outstanding),
		intField(envPinned, &c.PinnedLimit),
		intField(envRingMemory, &c.RingMemory),
		intField(envRingLimit, &c.RingLimit),
		intField(envAdverts, &c.Adverts),
		intField(envSpin, &c.Spin),
		intField(envYields, &c.Yields),
		durationField(envPeerTimeout, &c.PeerTimeout),
		durationField(envHangTimeout, &c.HangTimeout),
		durationField(wireup.EnvTimeout, &c.SetupTimeout),
	}
}

func textField[S ~string](env string, p *S) field {
	return field{env, func() string { return string(*p) }, func(v *settings.Values) { *p = S(v.Text(env)) }}
}

func intField(env string, p *int) field {
	return field{env, func() string {
		if *p == 0 {
			return ""
		}
		return strconv.Itoa(*p)
	}, func(v *settings.Values) { *p = int(v.Int(env)) }}
}

func durationField(env string, p *time.Duration) field {
	return field{env, func() string {
		if *p == 0 {
			return ""
		}
		return p.String()
	}, func(v *settings.Values) { *p = v.Duration(env) }}
}

// effective returns the copy of c that an engine works with: with defaults filled in, and
// overridden by the environment and the settings file. Its error joins all invalid
// settings.
func (c *Config) effective() (Config, links.Options, wireup.Config, error) {
	var d Config
	if c != nil {
		d = *c
	}
	if d.Depth > 0 {
		d.Depth = max(d.Depth, minDepth)
	}
	src := settings.Source{Fields: map[string]string{}, Named: d.Settings}
	for _, f := range d.fields() {
		if text := f.get(); text != "" {
			src.Fields[f.env] = text
		}
	}
	v, err := settings.Load(src)
	w, jobErr := jobenv.FromEnv()
	if d.Job != nil {
		w = wireup.Config{Rank: d.Job.Rank, Size: d.Job.Size, Root: d.Job.Root, Token: d.Job.Token}
		w.Insecure, jobErr = wireup.InsecureFrom(os.Getenv)
		if w.Size > 1 && w.Root == "" {
			jobErr = fmt.Errorf("%w: Job.Root is empty: set it to the address of the job's server, on all ranks, or leave Job nil and start the program with a launcher (rmarun -n %d)",
				wireup.ErrEnvironment, w.Size)
		}
		if d.Job.Serve {
			w.Prepare = jobenv.ListenAt(d.Job.Root)
		}
	}
	_, tableErr := links.TableOf(v)
	if err = errors.Join(err, tableErr, jobErr); err != nil {
		return d, links.Options{}, wireup.Config{}, fmt.Errorf("config: %w", err)
	}
	for _, f := range d.fields() {
		f.set(v)
	}
	forced, o := links.FromSettings(v, links.Options{})
	d.Fabric = Fabric(forced)
	w.Timeout = d.SetupTimeout
	d.Logger = logger(d.Logger, v)
	w.Log = d.Logger
	d.report(v)
	return d, o, w, nil
}

// logger returns the program's logger, else the one that RMA_LOG selects, else one that
// discards all records.
func logger(own *slog.Logger, v *settings.Values) *slog.Logger {
	if own != nil {
		return own
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(v.Text(envLog))); err != nil { // "off"
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
}

// report logs settings that differ from their default, and variables that look misspelt.
func (c *Config) report(v *settings.Values) {
	for _, x := range v.All() {
		if x.Origin != settings.Default && x.Group <= settings.Links {
			c.Logger.Debug("rma: setting", "name", x.Name(), "value", x.Shown(), "origin", x.Origin.String(), "at", x.At)
		}
	}
	for _, e := range v.Unknown {
		c.Logger.Warn("rma: unknown variable", "name", e.At, "why", e.What)
	}
}
