package settings

import "time"

// engineSettings are those of rma.Config.
var engineSettings = []Setting{
	{
		Env: EnvConfig, Field: "File", Type: Type{Kind: Path}, Else: "no file", EnvOnly: true,
		What:  "settings file to read, with lines `name = value`",
		Why:   "a file read by default could surprise other users of the machine",
		Where: "internal/settings", Since: "0.1",
	},
	{
		Env: EnvStrict, Type: Type{Kind: Switch}, Default: "0",
		What:  "unknown variables that begin with `RMA_` stop `Open`; otherwise they are a warning in the log",
		Why:   "a variable of another version should not stop a production job, but should be found in tests of a deployment",
		Where: "internal/settings", Since: "0.1",
	},
	{
		Env: "RMA_FABRIC", Field: "Fabric", Type: Type{Kind: Enum, Values: []string{"auto", "shm", "tcp", "verbs", "ibv"}}, Default: "auto",
		What:  "the only link to use. `auto`: shm between ranks of a host, else verbs where a device reaches both ranks, else tcp. tcp also replaces verbs that is lost: by itself with `RMA_RAILS`, otherwise after `Peer.Reset` ([rails.md](rails.md#from-verbs-to-tcp)). `ibv` is another name of `verbs`",
		Why:   "within a host shared memory is faster than any adapter; between hosts RDMA is faster than TCP",
		Where: "internal/links", Since: "0.1",
	},
	{
		Env: "RMA_TCP_BIND", Field: "Bind", Type: Type{Kind: Address}, Else: "loopback in a job of one host, else the address from which the job's server is reached, or all interfaces if that is unknown",
		What:  "address that the TCP link listens on; `0.0.0.0`: all interfaces",
		Why:   "a job should not be reachable from networks that none of its ranks is in",
		Where: "fabric/tcp", Since: "0.1",
	},
	{
		Env: "RMA_IBV_DEVICE", Field: "Device", Type: Type{Kind: Text}, Else: "the first usable one",
		What:  "RDMA device, such as `mlx5_0` or `rxe0`",
		Why:   "most hosts have one device",
		Where: "fabric/ibv", Since: "0.1",
	},
	{
		Env: "RMA_RAILS", Field: "Rails", Type: Type{Kind: Text}, Else: "none",
		What:  "further connections with each peer, over which large puts, gets and messages are divided ([rails.md](rails.md)): up to three of the job's kind of link, separated by commas. tcp: an address of this host, a network (`10.1.0.0/16`) or an interface (`eth1`); verbs: `DEVICE` or `DEVICE:PORT`. With rails, the loss of the first connection fails no operation, except that over verbs atomics can lose their result",
		Why:   "which adapters and networks are free for a job is the administrator's decision",
		Where: "internal/links", Since: "0.1",
	},
	{
		Env: "RMA_MODE", Field: "Mode", Type: Type{Kind: Enum, Values: []string{"auto", "eager", "gather", "scatter"}}, Default: "auto",
		What:  "the mode of all messages that it can carry; `auto`: the cost model chooses for each batch",
		Why:   "no fixed mode is best for all sizes ([model.md](model.md)); forcing one is for experiments",
		Where: "internal/message", Since: "0.1",
	},
	{
		Env: "RMA_MODE_TABLE", Field: "ModeTable", Type: Type{Kind: Text}, Else: "no table",
		What:  "modes by size and number of messages, instead of the cost model's choice: `shm:1x4K=eager,4K=gather,*=scatter;*=eager`. Semicolons separate sections. A section that begins with `shm:`, `verbs:` or `tcp:` is for that kind of link; one without such a name is for the other kinds. It is a list of rows `[COUNTx]SIZE[@FIRST]=MODE`, and the first row that matches a message decides: the message has at most SIZE bytes, its batch has at most COUNT messages, and it is among the first FIRST of them. If no row matches, or the mode cannot carry the message, the cheapest mode is used. `RMA_MODE` overrides the table",
		Why:   "thresholds that are best for one size and number are not for others ([model.md](model.md#modes-by-table)); a table is for experiments, and for users who know their link better than its measurement does",
		Where: "logp", Since: "0.2",
	},
	{
		Env: "RMA_PIECES", Field: "Pieces", Type: Type{Kind: Enum, Values: []string{"auto", "chain", "group"}}, Default: "auto",
		What:  "how puts and gets of several pieces are transferred, where the method can carry them. `chain`: one request of the link per piece; `group`: one request that the target's engine executes; `auto`: the cost model chooses",
		Why:   "no fixed method is best for all sizes and links ([model.md](model.md#puts-and-gets-of-several-pieces)); forcing one is for experiments",
		Where: "internal/initiator", Since: "0.1",
	},
	{
		Env: "RMA_COLL_ALGORITHM", Type: Type{Kind: Text}, Else: "by predicted time", EnvOnly: true,
		What:  "algorithms of collective operations, such as `allreduce=ring,bcast=chain`; the same on all ranks. A call that the algorithm cannot perform (`flags` with more than 480 bytes, for example) uses another one. An algorithm that the operation does not have is an error, which lists those that it has. The first call of `coll.World` or `coll.New` checks the list; `Open` does not. Algorithms: `dissemination`, `binomial`, `chain`, `linear`, `doubling`, `halving`, `ring`, `scatter`, `circulant`, `3-nomial`, `4-nomial`, `8-nomial`, `16-nomial`, `flags`, `shared`, `single`, `hierarchy`",
		Why:   "no fixed algorithm is best for all sizes; forcing one is for experiments",
		Where: "coll", Since: "0.2",
	},
	{
		Env: "RMA_COLL_CHECK", Type: Type{Kind: Switch}, Default: "0", EnvOnly: true,
		What:  "1: each rank tells the next rank of its team about each of its collective calls, so that every difference between the calls of ranks is found and named. The same on all ranks",
		Why:   "headers of messages show most differences without it; but two ranks whose calls differ both wait where no message passes between them. A message for each call is for debugging",
		Where: "coll", Since: "0.2",
	},
	{
		Env: "RMA_SAMPLING", Field: "Sampling", Type: Type{Kind: Enum, Values: []string{"cached", "force", "off"}}, Default: "cached",
		What:  "origin of the cost model's parameters of a link: `cached`, a saved measurement, otherwise a new one; `force`, a new one; `off`, default parameters of the kind of link",
		Why:   "a measurement takes one pair of ranks per kind of link tens of milliseconds at the first start, and gives better choices than defaults",
		Where: "sampling", Since: "0.1",
	},
	{
		Env: "RMA_PROFILES", Field: "Profiles", Type: Type{Kind: Path}, Else: "`rma` in the user's cache directory",
		What:  "directory of saved measurements",
		Why:   "measurements belong to a machine, not to a program; hosts that share home directories need separate directories",
		Where: "sampling", Since: "0.1",
	},
	{
		Env: "RMA_SAMPLING_BUDGET", Field: "SamplingBudget", Type: Type{Kind: Duration, Min: int64(2 * time.Millisecond), Max: int64(10 * time.Second)}, Default: "50ms",
		What:  "time for measuring a link if necessary: single operations first, then whole batches",
		Why:   "sufficient for links with latencies of microseconds, and short compared with the start of a job; slow links benefit from more ([model.md](model.md#when-the-model-is-wrong))",
		Where: "rma", Since: "0.1",
	},
	{
		Env: "RMA_PATH_BUDGET", Field: "PathBudget", Type: Type{Kind: Duration, Min: int64(2 * time.Millisecond), Max: int64(10 * time.Second), Negative: "only the first pair measures"}, Default: "5s",
		What:  "time for measuring a path in the background: that to peers of another class than those that measured the link in `Open` ([model.md](model.md#paths)). Paths with round trips below a millisecond take at most `RMA_SAMPLING_BUDGET`",
		Why:   "some hundred round trips of ten milliseconds, once per class, with almost no processor time, because waits on such a path sleep",
		Where: "internal/bringup", Since: "0.1",
	},
	{
		Env: "RMA_PATH_BYTES", Field: "PathBytes", Type: Type{Kind: Bytes, Min: 64 << 10, Max: 1<<31 - 1}, Default: "32M",
		What:  "most bytes that a measurement of such a path moves, in both directions together",
		Why:   "a few operations of each size up to 1 MiB",
		Where: "internal/bringup", Since: "0.1",
	},
	{
		Env: "RMA_LEARN", Field: "Learn", Type: Type{Kind: Count, Unit: "messages", Min: 1, Max: 1 << 30, Negative: "never"}, Default: "256",
		What:  "one of so many messages that are sent alone is timed, to detect that a link no longer matches its measurement; a planned batch counts as four messages. The results correct later choices ([model.md](model.md#while-running))",
		Why:   "costs 2 ns per message; a mode that has become slow is abandoned after some thousand batches",
		Where: "internal/message", Since: "0.1",
	},
	{
		Env: "RMA_DEPTH", Field: "Depth", Type: Type{Kind: Count, Unit: "requests", Min: 16, Max: 1 << 16}, Default: "256",
		What:  "most requests in flight to one peer; further ones wait in the process",
		Why:   "covers the bandwidth-delay product of every link measured. A larger value takes queue memory for each peer; a smaller one stalls streams of small operations",
		Where: "fabric", Since: "0.1",
	},
	{
		Env: "RMA_OUTSTANDING", Field: "Outstanding", Type: Type{Kind: Count, Unit: "operations", Min: 16, Max: 1 << 30, Negative: "any number"}, Default: "262144",
		What:  "most incomplete operations with one peer; the bound for all peers together is four times as large. Further operations fail with `ErrBusy`. Receives and barriers do not count. Messages and signals of libraries (`coll`, `locks`, `rmanet`) have a bound of their own, as large and at least 262144",
		Why:   "more than programs wait for at once, and less than 0.5 GB of memory for a peer that has stopped",
		Where: "internal/pending", Since: "0.1",
	},
	{
		Env: "RMA_PINNED_LIMIT", Field: "PinnedLimit", Type: Type{Kind: Bytes, Min: 4096, Max: 1<<31 - 1, Negative: "none"}, Default: "64M",
		What:  "unregistered memory of applications that each link keeps pinned and registered between messages",
		Why:   "holds a window of 16 messages of 4 MiB, for which registration costs most; more keeps more garbage from being collected",
		Where: "internal/message", Since: "0.1",
	},
	{
		Env: "RMA_RING_MEMORY", Field: "RingMemory", Type: Type{Kind: Bytes, Min: 1 << 16, Max: 1<<31 - 1}, Else: "128 MiB. In jobs of up to 64 ranks each peer that messages are exchanged with has rings of 512 KiB from the start (in jobs of more than 16 ranks pages of rings over tcp, and of their copies over tcp and shm, come with their use); the 128 MiB are for rings that grow because their path has more in flight",
		What:  "most memory of rings for messages that have grown, over all peers. If it is set, and in jobs of more than 64 ranks, the rings of a peer begin with 16 KiB, copies at senders included, and follow the traffic. When it is used up, peers without traffic lose their grown rings",
		Why:   "1 MiB a peer is too much for a rank that exchanges messages with a thousand peers; but until a ring has grown, messages longer than 1.7 KB are announced, and their sends end only when there is a receive",
		Where: "eager", Since: "0.1",
	},
	{
		Env: "RMA_RING_LIMIT", Field: "RingLimit", Type: Type{Kind: Bytes, Min: 64 << 10, Max: 1 << 30}, Default: "16M",
		What:  "size of a ring that has grown; rings larger than 512 KiB are made only for paths that have more in flight",
		Why:   "a round trip of 10 ms at 800 MB/s, with credit returned for half a ring",
		Where: "internal/message", Since: "0.1",
	},
	{
		Env: "RMA_ADVERTS", Field: "Adverts", Type: Type{Kind: Count, Unit: "receives", Min: 1, Max: 4096, Negative: "none"}, Default: "16",
		What:  "most receives advertised to a peer at a time, before their messages arrive, so that large messages are written directly into their buffers",
		Why:   "equals the reads that links keep in flight; more would fill the ring for announcements",
		Where: "internal/message", Since: "0.1",
	},
	{
		Env: "RMA_SPIN", Field: "Spin", Type: Type{Kind: Count, Unit: "polls", Min: 1, Max: 1 << 24, Negative: "none"}, Else: "320 if every rank of the host has its own processor, 48 if not, none if all share one",
		What:  "polls of a wait before it yields the processor, the first 64 without pauses. Unless this or `RMA_YIELDS` is set, waits adapt: they do not spin while other threads compute on the processor or take turns with this one ([progress.md](progress.md#beside-other-load))",
		Why:   "longer than a round trip, so that an answer of a running peer arrives during the spin, and short where other ranks need the processor ([figures.md](figures.md#more-ranks-than-processors))",
		Where: "internal/cpu", Since: "0.1",
	},
	{
		Env: "RMA_YIELDS", Field: "Yields", Type: Type{Kind: Count, Unit: "yields", Min: 1, Max: 1 << 24, Negative: "none"}, Else: "1024 where ranks share several processors, else 128",
		What:  "yields of a wait before it sleeps on the links' descriptors. With the largest number waits practically never sleep; with none, and `RMA_SPIN=-1`, they sleep after one yield",
		Why:   "on a host with free processors 128 yields take more than a sleep and a wake-up; on an oversubscribed host each yield gives the processor to the ranks ahead, which costs less than that",
		Where: "internal/progress", Since: "0.1",
	},
	{
		Env: "RMA_PROGRESS_CPU", Type: Type{Kind: Count, Min: 0, Max: 16383}, Else: "none: the thread runs where the process may", EnvOnly: true,
		What:  "processor that the thread of the progress goroutine is bound to; it may be outside those of the process ([progress.md](progress.md#a-processor-for-the-progress-goroutine))",
		Why:   "it can gain only where a processor is free for each rank; `rmarun --bind-progress` finds such processors",
		Where: "internal/progress", Since: "0.2",
	},
	{
		Env: "RMA_EXTRA_P", Type: Type{Kind: Switch}, Default: "1", EnvOnly: true,
		What:  "1: `GOMAXPROCS` is one more while goroutines compute on all Ps of the Go scheduler, so that the engine reacts at once ([progress.md](progress.md#a-p-for-the-engine)). Not if `RMA_PROGRESS_CPU` is set, nor if `GOMAXPROCS` is 1 and the rank shares its processors. A `GOMAXPROCS` of 1 also is 2 while connections are made",
		Why:   "otherwise the scheduler runs each computing goroutine for 10 ms before the engine; and while a goroutine waits for a peer on the only P, it looks at the network every 10 ms",
		Where: "internal/progress", Since: "0.2",
	},
	{
		Env: "RMA_PEER_TIMEOUT", Field: "PeerTimeout", Type: Type{Kind: Duration, Min: int64(time.Millisecond)}, Default: "2s",
		What:  "time within which a link detects that a peer is gone; its operations then fail",
		Why:   "long compared with pauses of busy processes, short for a user who waits",
		Where: "fabric", Since: "0.1",
	},
	{
		Env: "RMA_HANG_TIMEOUT", Field: "HangTimeout", Type: Type{Kind: Duration, Min: int64(100 * time.Millisecond), Negative: "wait for ever"}, Default: "1m0s",
		What:  "time without progress after which a peer with pending operations counts as hung; the operations fail",
		Why:   "long compared with the pauses that overloaded hosts, debuggers and migrations impose on a process that continues afterwards",
		Where: "rma", Since: "0.1",
	},
	{
		Env: "RMA_TIMEOUT", Field: "SetupTimeout", Type: Type{Kind: Duration, Min: 1, Negative: "wait for ever"}, Default: "2m0s",
		What:  "time limit of `Open`, `Barrier` and exchanges through the job if the context has no deadline, and of connecting with a peer",
		Why:   "long compared with the start of a large job on a loaded machine, short compared with the limits of a batch queue",
		Where: "internal/wireup", Since: "0.1",
	},
	{
		Env: "RMA_LOG", Type: Type{Kind: Enum, Values: []string{"off", "error", "warn", "info", "debug"}}, Default: "off",
		What:  "level of a text log on standard error, for programs that set no `Config.Logger` ([observability.md](observability.md#log))",
		Why:   "a library should write nothing by default",
		Where: "rma", Since: "0.1",
	},
}
