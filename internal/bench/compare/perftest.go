package compare

import (
	"fmt"
	"strconv"
	"strings"
)

// perftest is the verbs benchmark suite of that name: bare verbs.
var perftest = &Peer{
	Name: "perftest", About: "ib_send_lat, ib_send_bw, ib_write_lat, ib_write_bw",
	Needs:   []Need{{Program: "ib_write_lat", Package: "perftest"}},
	Tests:   map[string][]Kind{"verbs": Kinds},
	Version: []string{"dpkg-query", "-W", "-f", "perftest ${Version}\n", "perftest"},
	Plan:    perftestPlan, Parse: parsePerftest, Trial: 100,
}

var perftestPrograms = map[Kind]string{Lat: "ib_send_lat", BW: "ib_send_bw", Rate: "ib_send_bw", Put: "ib_write_lat", PutBW: "ib_write_bw"}

func perftestPlan(j Job) (Plan, error) {
	if j.Device == "" {
		return Plan{}, fmt.Errorf("perftest: %w: no device", ErrFabric)
	}
	args := []string{
		perftestPrograms[j.Test.Kind], "-d", j.Device, "-i", strconv.Itoa(max(j.DevicePort, 1)), "-x", strconv.Itoa(j.GID), "-F",
		"-p", strconv.Itoa(j.Port), "-s", strconv.Itoa(j.Test.Size), "-n", strconv.Itoa(j.Iters),
	}
	return Plan{Server: args, Client: append(args[:len(args):len(args)], j.Addr)}, nil
}

// parsePerftest reads the line of the size. For latency: bytes, iterations, minimum, maximum
// and typical time in µs. For bandwidth: bytes, iterations, peak and average in 2^20 bytes a
// second, and 1e6 messages a second, which has more digits for small messages.
func parsePerftest(out []byte, j Job) (float64, error) {
	program := perftestPrograms[j.Test.Kind]
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if len(f) < 5 || f[0] != strconv.Itoa(j.Test.Size) {
			continue
		}
		v, ok := numbers(f[:5], 5) // without a usable clock it prints inf or 0
		switch {
		case !ok || v[3] <= 0 || v[4] <= 0:
			return 0, &OutputError{Program: program, Want: "5 columns of positive numbers", Line: strings.TrimSpace(line)}
		case j.Test.less() || j.Test.Kind == Rate:
			return v[4], nil
		case j.Test.Size <= 4096:
			return v[4] * float64(j.Test.Size), nil
		}
		return v[3] * (1 << 20) / 1e6, nil
	}
	return 0, &OutputError{Program: program, Want: fmt.Sprintf("a line for %d bytes", j.Test.Size), Line: lastLine(out)}
}
