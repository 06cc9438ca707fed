package settings

// jobSettings say which process of which job this is, and how its ranks meet.
// rmarun sets most of them; others' launchers are understood without
// (docs/launching.md). internal/wireup and internal/jobenv check them.
var jobSettings = []Setting{
	{
		Env: "RMA_RANK", Group: Job, Type: Type{Kind: Count}, Else: "0 of a job of one", EnvOnly: true,
		What: "this process's number in the job, from 0", Where: "internal/wireup", Since: "0.1",
	},
	{
		Env: "RMA_SIZE", Group: Job, Type: Type{Kind: Count, Unit: "processes", Min: 1}, Else: "1", EnvOnly: true,
		What: "how many processes the job has", Where: "internal/wireup", Since: "0.1",
	},
	{
		Env: "RMA_ROOT", Group: Job, Type: Type{Kind: Text}, Else: "none: a job of one", EnvOnly: true,
		What: "the wire-up server: `unix:/path` or `host:port`", Where: "internal/wireup", Since: "0.1",
	},
	{
		Env: "RMA_SERVE", Group: Job, Type: Type{Kind: Switch}, Else: "0 where RMA_RANK is set, 1 under launchers that bring no server", EnvOnly: true,
		What: "rank 0 runs the wire-up server within itself, at RMA_ROOT", Where: "internal/jobenv", Since: "0.1",
	},
	{
		Env: "RMA_LAUNCHER", Group: Job, EnvOnly: true, Default: "auto",
		Type: Type{Kind: Enum, Values: []string{"auto", "none", "rma", "openmpi", "mpich", "slurm", "kubernetes"}},
		What: "whose variables describe the job; `none`: this process is alone", Where: "internal/jobenv", Since: "0.1",
	},
	{
		Env: "RMA_SERVICE", Group: Job, Type: Type{Kind: Text}, Else: "none", EnvOnly: true,
		What: "headless service of the pods of an indexed Kubernetes Job, with `:port` if it is not 7117", Where: "internal/jobenv", Since: "0.1",
	},
	{
		Env: "RMA_TOKEN", Group: Job, Type: Type{Kind: Secret}, Else: "none: enough only at a Unix socket of one user", EnvOnly: true,
		What: "the job's secret, at least 16 bytes, the same for the server and all ranks; proved by both sides, never sent; their data is sealed with keys derived from it", Where: "internal/wireup", Since: "0.1",
	},
	{
		Env: "RMA_TOKEN_FILE", Group: Job, Type: Type{Kind: Path}, Else: "none", EnvOnly: true,
		What: "file with the secret, hexadecimal, if RMA_TOKEN is not set; refused if it belongs to this user and others may access it", Where: "internal/wireup", Since: "0.1",
	},
	{
		Env: "RMA_INSECURE", Group: Job, Type: Type{Kind: Switch}, Default: "0", EnvOnly: true,
		What: "a job may run without a secret although others can reach its wire-up server, including on loopback", Why: "every process that reaches it could join, and write to the ranks' memory", Where: "internal/wireup", Since: "0.1",
	},
	{
		Env: "RMA_TLS_CERT", Group: Job, Type: Type{Kind: Path}, Else: "no TLS", EnvOnly: true,
		What: "this process's certificate (PEM) for the connection to the wire-up server", Where: "internal/wireup", Since: "0.1",
	},
	{
		Env: "RMA_TLS_KEY", Group: Job, Type: Type{Kind: Path}, Else: "no TLS", EnvOnly: true,
		What: "its key", Where: "internal/wireup", Since: "0.1",
	},
	{
		Env: "RMA_TLS_CA", Group: Job, Type: Type{Kind: Path}, Else: "no TLS", EnvOnly: true,
		What: "certificates by which those of the other processes must be signed", Where: "internal/wireup", Since: "0.1",
	},
	{
		Env: "RMA_JOB", Group: Job, Type: Type{Kind: Text}, Else: "no name", EnvOnly: true,
		What: "name of the job, for messages", Where: "internal/wireup", Since: "0.1",
	},
	{
		Env: "RMA_LOCAL_RANK", Group: Job, Type: Type{Kind: Count}, Else: "0", EnvOnly: true,
		What: "number among the job's processes of this host, from 0", Where: "internal/wireup", Since: "0.1",
	},
	{
		Env: "RMA_LOCAL_SIZE", Group: Job, Type: Type{Kind: Count, Unit: "processes"}, Else: "unknown", EnvOnly: true,
		What: "how many of the job's processes this host has", Where: "internal/launch", Since: "0.1",
	},
}
