package settings

// Foreign is a variable of somebody else that is read here, never set.
type Foreign struct {
	Env  string
	By   string // who sets it
	What string // what is taken from it, a clause
}

// ForeignVars are the variables by which launchers say what they have started;
// internal/jobenv reads them, docs/launching.md tells when.
var ForeignVars = []Foreign{
	{"OMPI_COMM_WORLD_RANK", "Open MPI", "rank"},
	{"OMPI_COMM_WORLD_SIZE", "Open MPI", "size"},
	{"OMPI_COMM_WORLD_LOCAL_RANK", "Open MPI", "number on this host"},
	{"OMPI_COMM_WORLD_LOCAL_SIZE", "Open MPI", "whether all ranks are on this host"},
	{"OMPI_MCA_orte_hnp_uri", "Open MPI", "the host of mpirun, the wire-up address if rank 0 is there"},
	{"OMPI_MCA_orte_precondition_transports", "Open MPI to release 4", "a secret of the job"},
	{"PMIX_NAMESPACE", "Open MPI", "identification of the job"},
	{"PMI_RANK", "MPICH, `srun --mpi=pmi2`", "rank"},
	{"PMI_SIZE", "MPICH, `srun --mpi=pmi2`", "size"},
	{"PMI_FD", "MPICH, `srun --mpi=pmi2`", "an open socket to the launcher, through which rank 0 publishes the address of the wire-up server"},
	{"PMI_PORT", "MPICH", "not supported: an error says what to do"},
	{"PMI_JOBID", "MPICH", "identification of the job"},
	{"MPI_LOCALRANKID", "MPICH", "number on this host"},
	{"MPI_LOCALNRANKS", "MPICH", "whether all ranks are on this host"},
	{"MPIR_CVAR_CH3_INTERFACE_HOSTNAME", "MPICH", "the launcher's name of this host"},
	{"SLURM_PROCID", "Slurm", "rank"},
	{"SLURM_STEP_NUM_TASKS", "Slurm", "size"},
	{"SLURM_NTASKS", "Slurm, older", "size"},
	{"SLURM_LOCALID", "Slurm", "number on this host"},
	{"SLURM_STEP_ID", "Slurm", "its presence: this process belongs to a step, not to a batch script; identification of the step"},
	{"SLURM_JOB_ID", "Slurm", "identification of the job"},
	{"SLURM_CLUSTER_NAME", "Slurm", "the same"},
	{"SLURM_STEP_LAUNCHER_PORT", "Slurm", "the same"},
	{"SLURM_STEP_NUM_NODES", "Slurm", "whether all ranks are on this host"},
	{"SLURM_STEP_NODELIST", "Slurm", "the first node, where the wire-up server runs"},
	{"SLURMD_NODENAME", "Slurm", "Slurm's name of this host"},
	{"JOB_COMPLETION_INDEX", "Kubernetes, indexed Job", "rank"},
	{"HOSTNAME", "Kubernetes", "name of the job, which gives the name of rank 0's pod"},
	{"XDG_RUNTIME_DIR", "the login", "directory of the wire-up socket of a job on one host"},
}
