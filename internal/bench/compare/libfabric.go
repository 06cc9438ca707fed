package compare

import (
	"strconv"
	"strings"
)

// libfabric is Open Fabrics Interfaces. Debian's program of its own plays
// ping-pong only; a stream cannot be had of it.
var libfabric = &Peer{
	Name: "libfabric", About: "fi_pingpong: tagged messages of endpoints of type rdm",
	Needs:   []Need{{Program: "fi_pingpong", Package: "libfabric-bin"}},
	Tests:   map[string][]Kind{"shm": {Lat}, "tcp": {Lat}},
	Version: []string{"fi_info", "--version"},
	Plan:    libfabricPlan, Parse: parsePingpong, Trial: 200,
}

// libfabricPlan names the provider, which has the fabric's name; the addresses of
// endpoints are exchanged over a connection of the program's own.
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
// usec/xfer, Mxfers/sec. A transfer is one way; the times are means.
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

// fiSize is how fi_pingpong writes a number of bytes: 64k, 1m where it is whole.
func fiSize(n int) string {
	switch {
	case n >= 1<<20 && n%(1<<20) == 0:
		return strconv.Itoa(n>>20) + "m"
	case n >= 1<<10 && n%(1<<10) == 0:
		return strconv.Itoa(n>>10) + "k"
	}
	return strconv.Itoa(n)
}
