package links

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
)

// Names of the environment variables; see the package comment.
const (
	EnvFabric          = "RMA_FABRIC"
	EnvDisableCMA      = "RMA_DISABLE_CMA"
	EnvDisableSegments = "RMA_DISABLE_SEGMENTS"
	EnvBind            = "RMA_TCP_BIND"
	EnvDevice          = "RMA_IBV_DEVICE"
	EnvPort            = "RMA_IBV_PORT"
	EnvGIDIndex        = "RMA_IBV_GID_INDEX"
	EnvLastByte        = "RMA_IBV_LAST_BYTE"
	EnvGuard           = "RMA_IBV_GUARD"
)

// ErrEnvironment says that a variable has a value that makes no sense.
var ErrEnvironment = errors.New("bad environment variable")

// FromEnv reads the environment on top of o; variables that are not set leave
// o as it is. forced is the link to use, "" for any.
func FromEnv(o Options) (forced string, _ Options, err error) { return fromEnv(o, os.Getenv) }

func fromEnv(o Options, get func(string) string) (string, Options, error) {
	bad := func(name, want string) (string, Options, error) {
		return "", o, fmt.Errorf("links: %w: %s=%q: want %s", ErrEnvironment, name, get(name), want)
	}
	forced, err := Canonical(get(EnvFabric))
	if err != nil {
		return bad(EnvFabric, "auto, shm, tcp or verbs")
	}
	for name, to := range map[string]*bool{EnvDisableCMA: &o.DisableCMA, EnvDisableSegments: &o.DisableSegments} {
		if s := get(name); s != "" {
			if *to, err = strconv.ParseBool(s); err != nil {
				return bad(name, "0 or 1")
			}
		}
	}
	if s := get(EnvBind); s != "" {
		if o.Bind, err = netip.ParseAddr(s); err != nil {
			return bad(EnvBind, "an IP address")
		}
	}
	if s := get(EnvDevice); s != "" {
		o.Device = s
	}
	if s := get(EnvPort); s != "" {
		if o.Port, err = strconv.Atoi(s); err != nil || o.Port < 1 || o.Port > 255 {
			return bad(EnvPort, "1 … 255")
		}
	}
	if s := get(EnvGIDIndex); s != "" {
		i, err := strconv.Atoi(s)
		if err != nil || i < 0 || i > 255 {
			return bad(EnvGIDIndex, "0 … 255")
		}
		o.GIDIndex = &i
	}
	for name, to := range map[string]**bool{EnvLastByte: &o.LastByteLast, EnvGuard: &o.Guard} {
		if s := get(name); s != "" {
			v, err := strconv.ParseBool(s)
			if err != nil {
				return bad(name, "0 or 1")
			}
			*to = &v
		}
	}
	return forced, o, nil
}
