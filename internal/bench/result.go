package bench

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/cpuid/v2"
)

// Latency summarises a distribution, in µs.
type Latency struct {
	Min  float64 `json:"min"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p99_9"`
	Max  float64 `json:"max"`
	Mean float64 `json:"mean"`
}

// Result is one measured point. Its JSON form is one line of --format json;
// fields are only ever added.
type Result struct {
	Test   Test    `json:"test"`
	Fabric string  `json:"fabric"`
	Op     Op      `json:"op"`
	Size   int     `json:"size"` // bytes
	Iters  int64   `json:"iters"`
	LatUS  Latency `json:"lat_us"`
	MBs    float64 `json:"mb_s"`   // 1e6 bytes a second
	Mmsgs  float64 `json:"mmsg_s"` // 1e6 messages a second

	// CPUNS is the user and system time that the processes of both ranks used for one
	// operation, in ns; of a ping-pong, for one of the two messages of a round trip. Zero:
	// not known (ranks on two hosts, not Linux), or validated.
	CPUNS float64 `json:"cpu_ns,omitempty"`

	Seconds   float64 `json:"seconds"`             // measured, without warm-up
	Window    int     `json:"window,omitempty"`    // bw and rate
	Round     int     `json:"round"`               // 0 … count-1
	Validated bool    `json:"validated,omitempty"` // every byte was checked
	Label     string  `json:"label,omitempty"`     // free text that separates merged results
	Machine   Machine `json:"machine"`

	Mode string `json:"mode,omitempty"` // of send: auto, or the forced mode
	Ways *Ways  `json:"ways,omitempty"` // of send: the modes that the messages used
}

// Ways counts the messages of each mode.
type Ways struct {
	Eager   uint64 `json:"eager"`
	Gather  uint64 `json:"gather"`
	Scatter uint64 `json:"scatter"`
}

// String names the modes in use, with their shares if there are several: "gather" or
// "eager 3 %, gather 97 %".
func (w *Ways) String() string {
	total := float64(w.Eager + w.Gather + w.Scatter)
	var used, shares []string
	for i, n := range []uint64{w.Eager, w.Gather, w.Scatter} {
		if n > 0 {
			used = append(used, Modes[i+1])
			shares = append(shares, fmt.Sprintf("%s %.0f %%", Modes[i+1], 100*float64(n)/total))
		}
	}
	if len(used) == 1 {
		return used[0]
	}
	return strings.Join(shares, ", ")
}

// fill computes the rates from messages and time.
func (r *Result) fill(msgs int64, took time.Duration) {
	r.Iters, r.Seconds = msgs, took.Seconds()
	if took > 0 {
		r.Mmsgs = float64(msgs) / r.Seconds / 1e6
		r.MBs = r.Mmsgs * float64(r.Size)
	}
}

// OfPairs sets latency and processor time to those of pairs that ran at once: to the medians of the
// pairs' medians and means, and to the time of all processes for an operation of any pair.
func (r *Result) OfPairs(all []Result) {
	var p50, mean []float64
	var used, ops float64
	for i := range all {
		x := &all[i]
		p50, mean = append(p50, x.LatUS.P50), append(mean, x.LatUS.Mean)
		used, ops = used+x.CPUNS*float64(x.Iters), ops+float64(x.Iters)
		if x.CPUNS == 0 { // not known
			used = math.NaN()
		}
	}
	r.LatUS.P50, r.LatUS.Mean, r.CPUNS = Median(p50), Median(mean), 0
	if used > 0 {
		r.CPUNS = used / ops
	}
}

// Machine describes the machine of a result, without names of hosts or users.
type Machine struct {
	CPU     string  `json:"cpu"`
	CPUs    int     `json:"cpus"` // usable by this process
	OS      string  `json:"os"`
	Arch    string  `json:"arch"`
	Kernel  string  `json:"kernel"`
	Virtual string  `json:"virtual,omitempty"` // hypervisor, or "user mode linux"
	Go      string  `json:"go"`
	TimerNS float64 `json:"timer_ns"` // cost of one reading of the timing loops' clock
}

// ThisMachine describes the machine that the process runs on.
var ThisMachine = sync.OnceValue(func() Machine {
	m := Machine{
		CPU: cpuid.CPU.BrandName, CPUs: runtime.NumCPU(), OS: runtime.GOOS, Arch: runtime.GOARCH, Kernel: kernel(),
		Go: runtime.Version(), TimerNS: float64(int(timerNS()*10)) / 10,
	}
	switch b, _ := os.ReadFile("/proc/cpuinfo"); {
	case strings.Contains(string(b), "User Mode Linux"):
		m.Virtual = "user mode linux"
	case cpuid.CPU.VM():
		m.Virtual = cpuid.CPU.HypervisorVendorID.String()
	}
	return m
})
