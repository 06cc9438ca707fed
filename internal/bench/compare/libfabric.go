package compare

import (
	"strconv"
	"strings"
)

// libfabric is Open Fabrics Interfaces. Debian packages only its ping-pong program, which
// makes no streams.
var libfabric = &Peer{
	Name: "libfabric", About: "fi_pingpong: tagged messages of endpoints of type rdm",
	Needs:   []Need{{Program: "fi_pingpong", Package: "libfabric-bin"}},
	Tests:   map[string][]Kind{"shm": {Lat}, "tcp": {Lat}},
	Version: []string{"fi_info", "--version"},
	Plan:    libfabricPlan, Parse: parsePingpong, Trial: 200,
}

// libfabricPlan selects the provider named after the fabric; the program exchanges the
// addresses of endpoints over a connection of its own.
func libfabricPlan(j Job) (Plan, error) {
	args := []string{
		"fi_pingpong", "-p", j.Fabric, "-e", "rdm", "-m", "tagged",
		"-I", strconv.Itoa(j.Iters), "-S", strconv.Itoa(j.Test.Size),
	}
	port := strconv.Itoa(j.Port)
	return Plan{
		Env:    []string{"FI_PROVIDER=" + j.Fabric + ",ofi_rxm"},
		Server: append(args[:len(args):len(args)], "-B", port),
		Client: append(args[:len(args):len(args)], "-P", port, j.Addr),
	}, nil
}

// parsePingpong reads the line of the size: bytes, #sent, #ack, total, time, MB/sec,
// usec/xfer, Mxfers/sec. A transfer is one way; times are means.
func parsePingpong(out []byte, j Job) (float64, error) {
	const columns, usec = 8, 6
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if len(f) != columns || f[0] != fiSize(j.Test.Size) {
			continue
		}
		if v, ok := numbers(f[usec:usec+1], 1); ok && v[0] > 0 {
			return v[0], nil
		}
		return 0, &OutputError{Program: "fi_pingpong", Want: "µs a transfer in column 7", Line: strings.TrimSpace(line)}
	}
	return 0, &OutputError{Program: "fi_pingpong", Want: "a line for " + fiSize(j.Test.Size) + " bytes", Line: lastLine(out)}
}

// fiSize formats a number of bytes as fi_pingpong does: 64k, 1m if it is a multiple.
func fiSize(n int) string {
	switch {
	case n >= 1<<20 && n%(1<<20) == 0:
		return strconv.Itoa(n>>20) + "m"
	case n >= 1<<10 && n%(1<<10) == 0:
		return strconv.Itoa(n>>10) + "k"
	}
	return strconv.Itoa(n)
}
