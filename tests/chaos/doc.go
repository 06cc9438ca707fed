// Command chaos tries to break jobs of rma for a given time: it starts real ranks as
// processes, lets them communicate by all operations, and kills, stops, starves and floods
// them, or takes their descriptors away. It checks the promises of docs/security.md and
// docs/memory-model.md: typed errors in bounded time, nothing lost, duplicated, reordered
// or overwritten, bounded memory, no leaks.
//
//	make chaos                            # ten minutes, a new seed
//	make chaos TIME=2h                    # a long campaign
//	make chaos SEED=7 PARTS=death ROUND=3 # one round again, as a failure prints it
//	make chaos VM=qemu PARTS=netem,ports  # in a guest whose kernel has netem and RDMA devices
//
//	main.go      flags, the loop over rounds
//	report.go    the tables at the end, and the file
//	campaign.go  a round: its random choices and its findings; figures and their bounds
//	job.go       the processes of a job, seen from outside
//	rank.go      what a rank does, and what it reports
//	traffic.go   the operations of a rank, each with a check of its data
//	halt.go      ways to keep a process from running; cgroup.go  control groups
//	death.go, hang.go, close.go, wire.go, flaps.go, interfaces.go, ports.go, netem.go, hostile.go, secrecy.go,
//	sniffer.go, users.go, limits.go, strangers.go, crowd.go
//	             the parts
//	mutant.go    a rank that breaks the protocols; beside.go  the ranks beside it
//	packet.go    frames of an interface, read and written;  flood.go  connections of strangers
//	probe.go     an operation that is timed;  guest.go  the campaign in a virtual machine
//
// A round is determined by the seed, its part and its number, except for the timing of
// processes: a replay makes the same choices and mostly, not always, meets the same
// failure.
package main
