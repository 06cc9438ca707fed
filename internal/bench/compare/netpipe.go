package compare

import (
	"strconv"
)

// netpipe is NetPIPE over a blocking TCP socket. Its streams are not used: it reopens its
// sockets before each trial, and its client may connect before the server listens.
var netpipe = &Peer{
	Name: "netpipe", About: "NPtcp: ping-pong of a TCP socket that blocks",
	Needs:   []Need{{Program: "NPtcp", Package: "netpipe-tcp"}},
	Tests:   map[string][]Kind{"tcp": {Lat}},
	Version: []string{"dpkg-query", "-W", "-f", "NetPIPE ${Version}\n", "netpipe-tcp"},
	Plan: func(j Job) (Plan, error) {
		args := append([]string{"NPtcp", "-P", strconv.Itoa(j.Port)}, netpipeArgs(&j)...)
		return Plan{Server: append(args[:len(args):len(args)], "-o", "/dev/null"), Client: append(args, "-o", "/dev/stdout", "-h", j.Addr)}, nil
	},
	Parse: parseNetpipe("NPtcp"), Trial: 200, WarmUp: trials,
}

// netpipeArgs are the arguments of both sides: a single size, without neighbouring sizes.
func netpipeArgs(j *Job) []string {
	size := strconv.Itoa(j.Test.Size)
	return []string{"-l", size, "-u", size, "-p", "0", "-n", strconv.Itoa(j.Iters)}
}

// parseNetpipe reads the line of the output file: bytes, rate in 2^20 bits a second,
// seconds for a message one way. The rate has more digits.
func parseNetpipe(program string) func(out []byte, j Job) (float64, error) {
	return func(out []byte, j Job) (float64, error) {
		v, err := parsePoint(out, program, []string{strconv.Itoa(j.Test.Size)}, 2, "rate, time", positive)
		if err != nil {
			return 0, err
		}
		one := float64(j.Test.Size) * 8 / (v[0] * (1 << 20)) // seconds
		return j.figure(one * float64(j.Iters)), nil
	}
}

// raw is a bare TCP socket used from C; see csrc/raw.c.
var raw = &Peer{
	Name: "raw", About: "a TCP socket used from C: ping-pong that spins, blocking stream",
	Needs: []Need{{Program: "cc", Header: "stdio.h", Package: "gcc libc6-dev"}},
	Tests: map[string][]Kind{"tcp": {Lat, BW, Rate}},
	Plan: func(j Job) (Plan, error) {
		port := strconv.Itoa(j.Port)
		return Plan{
			Server: []string{compiled(j.Dir), port},
			Client: []string{compiled(j.Dir), j.Addr, port, cTests[j.Test.Kind], strconv.Itoa(j.Test.Size), strconv.Itoa(j.Iters)},
		}, nil
	},
	Prepare: compile("cc", "raw.c"), Parse: parseC("raw.c"), Trial: 200, WarmUp: aTenth,
}
