package compare

import (
	"context"
	"encoding/json"
	"math"
	"strconv"
)

// Go libraries, by the programs of module bench/peers. On shm they use the fastest
// connection between two processes of a host, which for package net and gRPC is a Unix
// socket; on tcp, a connection over the loopback.
var (
	shmipcPeer = goPeer("shmipc", "shmipc-go: one stream, synchronous", []string{"shm"})
	grpcPeer   = goPeer("grpc", "grpc-go: one stream of raw bytes, over a Unix socket or TCP", []string{"shm", "tcp"})
	netPeer    = goPeer("net", "Go's package net: a Unix socket or TCP, one write a message", []string{"shm", "tcp"})
	netBatch   = goPeer("net", "the same, with one write for 32 messages", []string{"shm", "tcp"}, "--batch", "32")
)

func init() { netBatch.Name = "netbatch" }

// goNets maps fabrics to the programs' names of connections.
var goNets = map[string]string{"shm": "unix", "tcp": "tcp"}

// goPeer returns the peer of program rmapeer-name; more are further arguments of its client.
func goPeer(name, about string, fabrics []string, more ...string) *Peer {
	program := "rmapeer-" + name
	p := &Peer{
		Name: name, About: about,
		Needs:   []Need{{Program: program, Go: goModule + "/cmd/" + program}},
		Tests:   map[string][]Kind{},
		Version: []string{program, "version"},
		Parse:   parseGo, Trial: 300, WarmUp: aFifth,
	}
	for _, f := range fabrics {
		p.Tests[f] = []Kind{Lat, BW, Rate}
	}
	p.Prepare = func(ctx context.Context, dir string) error { return p.build(ctx, dir) }
	p.Plan = func(j Job) (Plan, error) { return goPlan(program, j, more) }
	return p
}

// goPlan leaves pinning to the programs, which know when it helps them.
func goPlan(program string, j Job, more []string) (Plan, error) {
	program = built(j.Dir, program)
	side := func(what string, side int) []string {
		args := []string{program, what, "--addr", j.Addr, "--port", strconv.Itoa(j.Port), "--limit", j.Limit.String()}
		if cpu, pinned := j.Core(side); pinned {
			args = append(args, "--cpu", strconv.Itoa(cpu))
		}
		return args
	}
	client := append(side("run", clientSide), "--net", goNets[j.Fabric], "--test", string(j.Test.Kind),
		"--size", strconv.Itoa(j.Test.Size), "--iters", strconv.Itoa(j.Iters))
	return Plan{Server: side("serve", serverSide), Client: append(client, more...), PinsItself: true}, nil
}

// parseGo reads the JSON line of package play.
func parseGo(out []byte, j Job) (float64, error) {
	var r struct {
		Test  string  `json:"test"`
		Size  int     `json:"size"`
		P50US float64 `json:"p50_us"`
		MBs   float64 `json:"mb_s"`
		Mmsgs float64 `json:"mmsg_s"`
	}
	err := json.Unmarshal([]byte(lastLine(out)), &r)
	x := r.Mmsgs
	switch j.Test.Kind {
	case Lat:
		x = r.P50US
	case BW:
		x = r.MBs
	}
	if err != nil || r.Test != string(j.Test.Kind) || r.Size != j.Test.Size || !(x > 0) || math.IsInf(x, 0) {
		return 0, &OutputError{Program: "rmapeer", Want: "a result of " + j.Test.String() + " in JSON", Line: lastLine(out)}
	}
	return x, nil
}
