// Command softroce runs programs on real SoftRoCE (rdma_rxe), with a kernel of its own if
// the host's lacks it.
//
//	tests/softroce/run -vm qemu -topology two -- ./my.test -test.v
//
// There are three ways with one interface: native (the host's own rdma_rxe), qemu (Debian's
// kernel, unpacked and never installed, in an emulated machine) and uml (a User-Mode Linux
// kernel built once; the user code runs at native speed). The program sees the host's root
// read-only under an overlay, in the same working directory; its output and exit code are
// returned. docs/softroce.md describes the use.
//
// The binary runs in two places. On the host it builds and caches kernels, starts machines,
// copies output and cleans up. Inside a guest the same binary is process 1: it mounts,
// loads modules, creates RDMA devices, runs the steps of a plan and writes a result. The
// two communicate through one shared directory that holds plan.json, stdout, stderr and
// result.json.
//
// Files: main.go options.go (commands, flags), packages.go doctor.go (what the
// host lacks), cache.go (kernel cache, run directories), debkernel.go vmlinux.go
// modules.go cpio.go (qemu's kernel), umlkernel.go umlpatch.go (uml's), plan.go (what host
// and guest tell each other), machine.go qemu.go uml.go native.go (starting and
// stopping), output.go (live output), guest.go steps.go (inside),
// topology.go (RDMA devices), run.go suite.go bench.go rails.go overlap.go perf.go perfinside.go perfparse.go (the
// commands).
//
// Invariants: a cache entry is complete or absent; no process or directory of a command
// survives it, however it ends; exit code 125 is the harness's own failure, every other
// code the program's.
//
// Tests: pure parts beside the code; the harness itself by the programs of
// tests/softroce/smoke, which `make softroce` runs first.
package main
