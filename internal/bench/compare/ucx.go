package compare

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/seed33544411/rma/internal/bench"
)

// ucx is Unified Communication X: tag-matched messages of its upper layer, which
// chooses its protocols as this library does.
var ucx = &Peer{
	Name: "ucx", Program: "ucx_perftest", Package: "ucx-utils",
	VersionProgram: "ucx_info", VersionArgs: []string{"-v"},
	Env: ucxEnv, Trial: 500,
	Server: func(port int) []string { return []string{"-p", strconv.Itoa(port)} },
	Client: func(t Test, addr string, port, iters int) ([]string, error) {
		name := "tag_bw"
		if t.Kind == bench.Lat {
			name = "tag_lat"
		}
		return []string{addr, "-p", strconv.Itoa(port), "-f", "-t", name, "-s", strconv.Itoa(t.Size),
			"-n", strconv.Itoa(iters), "-w", strconv.Itoa(max(iters/5, 10))}, nil
	},
	Pin:   func(args []string, cpu int) []string { return append(args, "-c", strconv.Itoa(cpu)) },
	Parse: parseUCX,
}

// ucxEnv restricts UCX to one kind of link. On verbs it is RC queue pairs, which
// ours are as well; without the GID index and the check switched off its wire-up
// over datagrams hangs on rxe (UCX 1.13).
func ucxEnv(fabric string, at Place) ([]string, error) {
	env := []string{"UCX_WARN_UNUSED_ENV_VARS=n", "UCX_LOG_LEVEL=error"}
	switch fabric {
	case "shm":
		return append(env, "UCX_TLS=shm"), nil
	case "tcp":
		return append(env, "UCX_TLS=tcp", "UCX_NET_DEVICES=lo"), nil
	case "verbs":
		if at.Device == "" {
			return nil, fmt.Errorf("ucx over verbs: %w: no device", ErrFabric)
		}
		return append(env, "UCX_TLS=rc_v", fmt.Sprintf("UCX_NET_DEVICES=%s:%d", at.Device, max(at.Port, 1)),
			fmt.Sprintf("UCX_IB_GID_INDEX=%d", at.GID), "UCX_UD_VERBS_ETH_DGID_CHECK=n"), nil
	}
	return nil, fmt.Errorf("ucx over %s: %w", fabric, ErrFabric)
}

// parseUCX reads the line of final numbers: iterations; typical, average and
// overall time in µs; average and overall bandwidth in 2^20 bytes a second;
// average and overall rate.
func parseUCX(out []byte, t Test) (float64, error) {
	const columns = 8
	var last [columns]float64
	found := false
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "Final:"))
		if len(f) != columns {
			continue
		}
		var v [columns]float64
		ok := true
		for i := range f {
			x, err := strconv.ParseFloat(f[i], 64)
			ok = ok && err == nil && x >= 0 && x < 1e12
			v[i] = x
		}
		if ok {
			last, found = v, true
		}
	}
	var x float64
	switch {
	case !found:
	case t.Kind == bench.Lat:
		x = last[1]
	case t.Kind == bench.BW && last[7] < 1000 && last[3] > 0:
		x = float64(t.Size) / last[3] // few messages a second: the time has more digits
	case t.Kind == bench.BW:
		x = last[7] * float64(t.Size) / 1e6 // many: the rate has
	default:
		x = last[7] / 1e6
	}
	if x <= 0 {
		return 0, fmt.Errorf("ucx_perftest %v: %w", t, ErrOutput)
	}
	return x, nil
}
