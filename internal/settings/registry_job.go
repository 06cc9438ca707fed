package settings

// jobSettings say which process of which job this is, and how its ranks meet.
// rmarun sets most of them; others' launchers are understood without
// (docs/launching.md). internal/wireup and internal/jobenv check them.
var jobSettings = []Setting{
	{
		Env: "RMA_RANK", Group: Job, Type: Type{Kind: Count}, Else: "0 of a job of one", EnvOnly: true,
		What: "rank of this process in the job, from 0", Where: "internal/wireup", Since: "0.1",
	},
	{
		Env: "RMA_SIZE", Group: Job, Type: Type{Kind: Count, Unit: "processes", Min: 1}, Else: "1", EnvOnly: true,
		What: "number of processes of the job", Where: "internal/wireup", Since: "0.1",
	},
	{
		Env: "RMA_ROOT", Group: Job, Type: Type{Kind: Text}, Else: "none: a job of one", EnvOnly: true,
		What: "the wire-up server: `unix:/path` or `host:port`", Where: "internal/wireup", Since: "0.1",
	},
	{
		Env: "RMA_SERVE", Group: Job, Type: Type{Kind: Switch}, Else: "0 if RMA_RANK is set, 1 under launchers without a wire-up server", EnvOnly: true,
		What: "rank 0 runs the wire-up server in its process, at RMA_ROOT", Where: "internal/jobenv", Since: "0.1",
	},
	{
		Env: "RMA_LAUNCHER", Group: Job, EnvOnly: true, Default: "auto",
		Type: Type{Kind: Enum, Values: []string{"auto", "none", "rma", "openmpi", "mpich", "slurm", "kubernetes"}},
		What: "launcher whose variables describe the job; `none`: a job of this process alone", Where: "internal/jobenv", Since: "0.1",
	},
	{
		Env: "RMA_SERVICE", Group: Job, Type: Type{Kind: Text}, Else: "none", EnvOnly: true,
		What: "headless service of the pods of an indexed Kubernetes Job, with `:port` if it is not 7117", Where: "internal/jobenv", Since: "0.1",
	},
	{
		Env: "RMA_TOKEN", Group: Job, Type: Type{Kind: Secret}, Else: "none: sufficient only for a Unix socket of one user", EnvOnly: true,
		What: "the job's secret, at least 16 bytes, the same for the server and all ranks. It is never sent: both sides prove that they know it, and encrypt their data with keys derived from it", Where: "internal/wireup", Since: "0.1",
	},
	{
		Env: "RMA_TOKEN_FILE", Group: Job, Type: Type{Kind: Path}, Else: "none", EnvOnly: true,
		What: "file with the secret, hexadecimal, if RMA_TOKEN is not set; refused if it belongs to this user and others may access it", Where: "internal/wireup", Since: "0.1",
	},
	{
		Env: "RMA_INSECURE", Group: Job, Type: Type{Kind: Switch}, Default: "0", EnvOnly: true,
		What: "allow a job without a secret although other users can reach its wire-up server, for example by loopback", Why: "every process that reaches the server could join the job and write to the ranks' memory", Where: "internal/wireup", Since: "0.1",
	},
	{
		Env: "RMA_TLS_CERT", Group: Job, Type: Type{Kind: Path}, Else: "no TLS", EnvOnly: true,
		What: "this process's certificate (PEM) for the connection to the wire-up server", Where: "internal/wireup", Since: "0.1",
	},
	{
		Env: "RMA_TLS_KEY", Group: Job, Type: Type{Kind: Path}, Else: "no TLS", EnvOnly: true,
		What: "private key of the certificate (PEM)", Where: "internal/wireup", Since: "0.1",
	},
	{
		Env: "RMA_TLS_CA", Group: Job, Type: Type{Kind: Path}, Else: "no TLS", EnvOnly: true,
		What: "certificates (PEM) that must have signed the certificates of the other processes", Where: "internal/wireup", Since: "0.1",
	},
	{
		Env: "RMA_JOB", Group: Job, Type: Type{Kind: Text}, Else: "no name", EnvOnly: true,
		What: "name of the job, for diagnostics", Where: "internal/wireup", Since: "0.1",
	},
	{
		Env: "RMA_LOCAL_RANK", Group: Job, Type: Type{Kind: Count}, Else: "0", EnvOnly: true,
		What: "number of this process among the job's processes on this host, from 0", Where: "internal/wireup", Since: "0.1",
	},
	{
		Env: "RMA_LOCAL_SIZE", Group: Job, Type: Type{Kind: Count, Unit: "processes"}, Else: "unknown", EnvOnly: true,
		What: "number of the job's processes on this host", Where: "internal/launch", Since: "0.1",
	},
}
