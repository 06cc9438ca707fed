package settings

// jobSettings say which process of which job this is. Launchers set them; set
// them by hand to start ranks in another way. internal/wireup checks them.
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
		What: "the rendezvous server: `unix:/path` or `host:port`", Where: "internal/wireup", Since: "0.1",
	},
	{
		Env: "RMA_TOKEN", Group: Job, Type: Type{Kind: Secret}, Else: "empty: proves nothing", EnvOnly: true,
		What: "the job's secret, the same for the server and all ranks; proved by both sides, never sent", Where: "internal/wireup", Since: "0.1",
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
