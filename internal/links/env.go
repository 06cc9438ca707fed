package links

import (
	"strings"

	"fmt"

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
	for name, to := range map[string]*int64{EnvCopyStream: &o.StreamFrom, EnvCopyString: &o.StringFrom} {
		if n := v.Int(name); n != 0 {
			*to = n
		}
	}
	if s := v.Text(EnvHost); s != "" {
		o.Host = s[:min(len(s), maxHostName)]
	}
	if a := v.Addr(EnvBind); a.IsValid() {
		o.Bind = a
	}
	if s := v.Text(EnvCongestion); s != "" {
		o.Congestion = s
	}
	if s := v.Text(EnvCrypt); s != "" {
		o.Crypt = s
	}
	if v.Get(EnvUnsent).Origin != settings.Default {
		o.Unsent = int(v.Int(EnvUnsent))
	}
	if v.Get(EnvLanes).Origin != settings.Default {
		o.Lanes = int(v.Int(EnvLanes))
	}
	if v.Get(EnvLaneMin).Origin != settings.Default {
		o.LaneMin = int(v.Int(EnvLaneMin))
	}
	if v.Get(EnvLongRTT).Origin != settings.Default {
		o.LongRTT = v.Duration(EnvLongRTT)
	}
	if s := v.Text(EnvDevice); s != "" {
		o.Device = s
	}
	if s := v.Text(EnvRails); s != "" {
		o.Rails = splitRails(s)
	}
	if n := v.Int(EnvPort); n != 0 {
		o.Port = int(n)
	}
	if v.Text(EnvGIDIndex) != "" {
		i := int(v.Int(EnvGIDIndex))
		o.GIDIndex = &i
	}
	for name, to := range map[string]**bool{EnvLastByte: &o.LastByteLast, EnvGuard: &o.Guard} {
		if on, _ := v.Switch(name); v.Get(name).Origin != settings.Default {
			*to = &on
		}
	}
	return forced, o
}
