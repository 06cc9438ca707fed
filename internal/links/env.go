package links

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/seed33544411/rma/internal/settings"
)

// Environment variables of settings of links; docs/configuration.md explains them.
const (
	EnvFabric          = "RMA_FABRIC"
	EnvHost            = "RMA_HOST"
	EnvDisableCMA      = "RMA_DISABLE_CMA"
	EnvDisableSegments = "RMA_DISABLE_SEGMENTS"
	EnvCopyStream      = "RMA_COPY_STREAM"
	EnvCopyString      = "RMA_COPY_STRING"
	EnvBind            = "RMA_TCP_BIND"
	EnvCongestion      = "RMA_TCP_CONGESTION"
	EnvCrypt           = "RMA_TCP_CRYPT"
	EnvUnsent          = "RMA_TCP_UNSENT"
	EnvLanes           = "RMA_TCP_LANES"
	EnvLaneMin         = "RMA_TCP_LANE_MIN"
	EnvLongRTT         = "RMA_TCP_LONG_RTT"
	EnvDevice          = "RMA_IBV_DEVICE"
	EnvPort            = "RMA_IBV_PORT"
	EnvGIDIndex        = "RMA_IBV_GID_INDEX"
	EnvLastByte        = "RMA_IBV_LAST_BYTE"
	EnvGuard           = "RMA_IBV_GUARD"
	EnvAtomics         = "RMA_IBV_ATOMICS"
	EnvModeTable       = "RMA_MODE_TABLE"
)

// ErrEnvironment means that a setting has an invalid value.
var ErrEnvironment = settings.ErrInvalid

// FromEnv applies environment and settings file to o, for programs without a rma.Config.
// forced is the link to use, "" for any. The error lists everything that is invalid.
func FromEnv(o Options) (forced string, _ Options, err error) {
	v, err := settings.Environment()
	if err != nil {
		return "", o, fmt.Errorf("links: %w", err)
	}
	forced, o = FromSettings(v, o)
	return forced, o, nil
}

// FromSettings applies settings to o; settings without a value do not change it. forced is
// the link to use, "" for any.
func FromSettings(v *settings.Values, o Options) (forced string, _ Options) {
	forced, _ = Canonical(v.Text(EnvFabric)) // the registry has the same names, as a test checks
	if simulated != nil && strings.HasPrefix(v.Text(EnvDevice), "sim") {
		forced = "sim"
	}
	for name, to := range map[string]*bool{EnvDisableCMA: &o.DisableCMA, EnvDisableSegments: &o.DisableSegments} {
		if v.Get(name).Origin != settings.Default {
			*to, _ = v.Switch(name)
		}
	}
	o.StreamFrom = cmp.Or(v.Int(EnvCopyStream), o.StreamFrom)
	o.StringFrom = cmp.Or(v.Int(EnvCopyString), o.StringFrom)
	if s := v.Text(EnvHost); s != "" {
		o.Host = s[:min(len(s), maxHostName)]
	}
	if a := v.Addr(EnvBind); a.IsValid() {
		o.Bind = a
	}
	o.Congestion = cmp.Or(v.Text(EnvCongestion), o.Congestion)
	o.Crypt = cmp.Or(v.Text(EnvCrypt), o.Crypt)
	for name, to := range map[string]*int{EnvUnsent: &o.Unsent, EnvLanes: &o.Lanes, EnvLaneMin: &o.LaneMin} {
		if v.Get(name).Origin != settings.Default {
			*to = int(v.Int(name))
		}
	}
	if v.Get(EnvLongRTT).Origin != settings.Default {
		o.LongRTT = v.Duration(EnvLongRTT)
	}
	o.Device = cmp.Or(v.Text(EnvDevice), o.Device)
	if s := v.Text(EnvRails); s != "" {
		o.Rails = splitRails(s)
	}
	o.Port = cmp.Or(int(v.Int(EnvPort)), o.Port)
	if v.Text(EnvGIDIndex) != "" {
		i := int(v.Int(EnvGIDIndex))
		o.GIDIndex = &i
	}
	if v.Get(EnvAtomics).Origin != settings.Default {
		o.HostAtomics = v.Text(EnvAtomics) == "host"
	}
	for name, to := range map[string]**bool{EnvLastByte: &o.LastByteLast, EnvGuard: &o.Guard} {
		if on, _ := v.Switch(name); v.Get(name).Origin != settings.Default {
			*to = &on
		}
	}
	return forced, o
}
