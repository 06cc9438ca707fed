package settings

import "time"

// linkSettings are for experts: they have no field of their own in rma.Config and
// are given there in Config.Settings.
var linkSettings = []Setting{
	{
		Env: "RMA_HOST", Group: Links, Type: Type{Kind: Text}, Else: "the host that the rank runs on",
		What:  "name of the host that the rank counts as being on (the first 64 bytes matter), for measurements and tests of jobs of several hosts on one. Ranks with different names, or with and without one, reach each other over links between hosts, and collective operations treat their paths accordingly",
		Why:   "a job has to use shared memory where it can",
		Where: "internal/links", Since: "0.2",
	},
	{
		Env: "RMA_DISABLE_CMA", Group: Links, Type: Type{Kind: Switch}, Default: "0",
		What:  "shm copies private memory through the segment instead of by `process_vm_readv` and `process_vm_writev`",
		Why:   "the system calls need one copy instead of two; shm detects where the kernel forbids them (Yama, seccomp, user namespaces)",
		Where: "fabric/shm", Since: "0.1",
	},
	{
		Env: "RMA_DISABLE_SEGMENTS", Group: Links, Type: Type{Kind: Switch}, Default: "0",
		What:  "shm's `Alloc` returns private memory, which peers cannot map",
		Why:   "mapped memory is accessed by plain loads and stores; the switch tests the other path",
		Where: "fabric/shm", Since: "0.1",
	},
	{
		Env: "RMA_COPY_STREAM", Group: Links, Type: Type{Kind: Bytes, Min: 4 << 10, Max: 1 << 46, Negative: "never"}, Else: "measured, or cache / (2 × processes that use it)",
		What:  "size from which shm copies with non-temporal stores, past the cache",
		Why:   "smaller data stays in the shared cache for the reader, larger data would evict it; `rmabench explain` shows the value in use",
		Where: "fabric/shm", Since: "0.1",
	},
	{
		Env: "RMA_COPY_STRING", Group: Links, Type: Type{Kind: Bytes, Min: 4 << 10, Max: 1 << 46, Negative: "never"}, Else: "measured, or the size of the first cache",
		What:  "size from which shm copies with the processor's string instruction (`rep movsb`), where it has a fast one",
		Why:   "the instruction overwrites cache lines without reading them, but has a high start-up cost",
		Where: "fabric/shm", Since: "0.1",
	},
	{
		Env: "RMA_TCP_CONGESTION", Group: Links, Type: Type{Kind: Text}, Else: "the system's default; within a host `reno` if the default uses pacing",
		What:  "congestion control of tcp's connections: one name for all, or `class=name,…` with the classes `host`, `near` and `long` of peers; `auto` and `kernel` (the system's default) are names too",
		Why:   "between hosts the administrator has chosen the default; within a host pacing halves the bandwidth ([figures.md](figures.md#bulk-over-tcp))",
		Where: "fabric/tcp", Since: "0.1",
	},
	{
		Env: "RMA_TCP_CRYPT", Group: Links, Type: Type{Kind: Enum, Values: []string{"off", "auth", "full"}}, Else: "`off` within a host, `auth` between hosts",
		What:  "protection of tcp's data: `auth` authenticates it, so that it cannot be changed, replayed or inserted in transit; `full` encrypts it as well. The stronger choice of the two sides is used",
		Why:   "an attacker who can change packets of one-sided operations can write to memory; within a host only the administrator can. The cost is in [ADR 13](adr/0013-tcp-is-authenticated-between-hosts.md)",
		Where: "fabric/tcp", Since: "0.1",
	},
	{
		Env: "RMA_TCP_UNSENT", Group: Links, Type: Type{Kind: Bytes, Min: 4096, Max: 1 << 30, Negative: "no bound"}, Default: "256K",
		What:  "bytes that a socket accepts beyond those that TCP can send at the moment (`TCP_NOTSENT_LOWAT`)",
		Why:   "urgent data cannot overtake data in the kernel, so little should wait there; with less, fast networks run out of data between two writes",
		Where: "fabric/tcp", Since: "0.1",
	},
	{
		Env: "RMA_TCP_LONG_RTT", Group: Links, Type: Type{Kind: Duration, Min: int64(time.Microsecond)}, Default: "1ms",
		What:  "round-trip time above which a tcp peer is of class `long`",
		Why:   "ten times the round-trip time in a large data centre, a tenth of that between two cities",
		Where: "fabric/tcp", Since: "0.1",
	},
	{
		Env: "RMA_TCP_LANES", Group: Links, Type: Type{Kind: Count, Unit: "connections", Min: 1, Max: 8, Negative: "none"}, Else: "1, or 4 for peers of class `long`",
		What:  "further connections with each tcp peer, over which the payload of large requests is striped; the smaller number of the two sides is used",
		Why:   "with one, small messages do not wait behind large ones, and one connection fills a fast network; within a host two are slower ([figures.md](figures.md#bulk-over-tcp))",
		Where: "fabric/tcp", Since: "0.1",
	},
	{
		Env: "RMA_TCP_LANE_MIN", Group: Links, Type: Type{Kind: Bytes, Min: 1, Max: 1 << 31}, Default: "256K",
		What:  "size from which payload of tcp is sent over the further connections",
		Why:   "payload of this size on the first connection delays small messages by 25 µs at 10 GB/s. A smaller limit reduces bandwidth, because every request then needs a send on two connections",
		Where: "fabric/tcp", Since: "0.1",
	},
	{
		Env: "RMA_IBV_PORT", Group: Links, Type: Type{Kind: Count, Min: 1, Max: 255}, Else: "the first that is up",
		What: "port of the RDMA device", Where: "fabric/ibv", Since: "0.1",
	},
	{
		Env: "RMA_IBV_GID_INDEX", Group: Links, Type: Type{Kind: Count, Min: 0, Max: 255}, Else: "chosen: RoCE v2 before v1, routable before link-local, IPv4-mapped before IPv6",
		What:  "entry of the port's GID table to send from; `rmabench info` shows the table and the choice",
		Why:   "the rule suits networks with one routed RoCEv2 address; set the entry for VLANs or several addresses",
		Where: "fabric/ibv", Since: "0.1",
	},
	{
		Env: "RMA_IBV_LAST_BYTE", Group: Links, Type: Type{Kind: Switch}, Default: "1",
		What:  "rely on the last word of a write becoming visible last ([memory-model.md](memory-model.md))",
		Why:   "adapters write in this order, and it saves a write per message; the specification does not guarantee it",
		Where: "fabric/ibv", Since: "0.1",
	},
	{
		Env: "RMA_IBV_GUARD", Group: Links, Type: Type{Kind: Switch}, Else: "on rdma_rxe between hosts",
		What:  "1: protect connections against the defects of `rdma_rxe` on a lossy network; 0: do not",
		Why:   "the protection costs round trips, and adapters do not need it",
		Where: "fabric/ibv", Since: "0.1",
	},
	{
		Env: "RMA_IBV_ATOMICS", Group: Links, Type: Type{Kind: Enum, Values: []string{"device", "host"}}, Default: "device",
		What:  "who executes fetch-adds and compare-and-swaps over verbs. `device`: the target's device, if it has atomics; `host`: the target's processor, when its engine polls. The same on all ranks",
		Why:   "a device needs no processor; `host` loses no result with a queue pair that fails ([rails.md](rails.md#rail-0-over-verbs)), and keeps atomics when tcp takes over ([rails.md](rails.md#from-verbs-to-tcp))",
		Where: "fabric/ibv", Since: "0.1",
	},
}
