package bench

import (
	"os"
	"runtime"
	"strings"
	"sync"

	"github.com/klauspost/cpuid/v2"
)

// Machine is what a result's numbers belong to. No names of hosts or users.
type Machine struct {
	CPU     string  `json:"cpu"`
	CPUs    int     `json:"cpus"` // usable by this process
	OS      string  `json:"os"`
	Arch    string  `json:"arch"`
	Kernel  string  `json:"kernel"`
	Virtual string  `json:"virtual,omitempty"` // hypervisor, or "user mode linux"
	Go      string  `json:"go"`
	TimerNS float64 `json:"timer_ns"` // cost of one reading of the clock of the timing loops
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
