package compare

import "strconv"

// raw is a TCP socket used from C with nothing in between; see csrc/raw.c.
var raw = &Peer{
	Name: "raw", About: "a TCP socket used from C: ping-pong that spins, blocking stream",
	Needs: []Need{{Program: "cc", Package: "gcc libc6-dev"}},
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
