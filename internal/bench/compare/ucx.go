package compare

import (
	"fmt"
	"strconv"
	"strings"
)

// ucx is Unified Communication X: tag-matched messages and writes of UCP, which chooses
// protocols as this library does.
var ucx = &Peer{
	Name: "ucx", About: "ucx_perftest: tag-matched messages, puts",
	Needs:   []Need{{Program: "ucx_perftest", Package: "ucx-utils"}},
	Tests:   map[string][]Kind{"shm": Kinds, "tcp": Kinds, "verbs": Kinds},
	Version: []string{"ucx_info", "-v"},
	Plan:    ucxPlan, Parse: parseUCX, Trial: 500, WarmUp: aFifth,
}

// ucxTests are the names of tests in ucx_perftest.
var ucxTests = map[Kind]string{Lat: "tag_lat", BW: "tag_bw", Rate: "tag_bw", Put: "ucp_put_lat", PutBW: "ucp_put_bw"}

func ucxPlan(j Job) (Plan, error) {
	env, err := ucxEnv(j.Fabric, &j.Place)
	port := strconv.Itoa(j.Port)
	return Plan{
		Env: env, Server: []string{"ucx_perftest", "-p", port},
		Client: []string{
			"ucx_perftest", j.Addr, "-p", port, "-f", "-t", ucxTests[j.Test.Kind], "-s", strconv.Itoa(j.Test.Size),
			"-n", strconv.Itoa(j.Iters), "-w", strconv.Itoa(aFifth(j.Test.Kind, j.Iters)),
		},
	}, err
}

// ucxEnv restricts UCX to one kind of link. On verbs that is RC queue pairs, as ours;
// without the GID index and the disabled check, its wire-up over datagrams hangs on rxe
// (UCX 1.13).
func ucxEnv(fabric string, at *Place) ([]string, error) {
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
		return append(env, "UCX_TLS=rc_v", fmt.Sprintf("UCX_NET_DEVICES=%s:%d", at.Device, max(at.DevicePort, 1)),
			fmt.Sprintf("UCX_IB_GID_INDEX=%d", at.GID), "UCX_UD_VERBS_ETH_DGID_CHECK=n"), nil
	}
	return nil, fmt.Errorf("ucx over %s: %w", fabric, ErrFabric)
}

// parseUCX reads the line of final numbers: iterations; typical, average and overall time
// in µs; average and overall bandwidth in 2^20 bytes a second; average and overall rate.
func parseUCX(out []byte, j Job) (float64, error) {
	const columns = 8
	var last [columns]float64
	found := false
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "Final:"))
		if v, ok := numbers(f, columns); ok {
			last, found = [columns]float64(v), true
		}
	}
	var x float64
	t := j.Test
	switch {
	case !found:
	case t.less():
		x = last[1]
	case t.Kind == Rate:
		x = last[7] / 1e6
	case last[7] < 1000 && last[3] > 0:
		x = float64(t.Size) / last[3] // few messages a second: the time has more digits
	default:
		x = last[7] * float64(t.Size) / 1e6 // many: the rate has more digits
	}
	if x <= 0 {
		return 0, &OutputError{Program: "ucx_perftest", Want: "8 columns of numbers", Line: lastLine(out)}
	}
	return x, nil
}
