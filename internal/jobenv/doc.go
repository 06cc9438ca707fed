// Package jobenv finds the job of this process in what its launcher put into
// the environment, so that rma.Open needs no arguments under any of them.
//
//	launcher            knows                          the ranks meet at
//	rmarun, by hand     RMA_RANK, RMA_SIZE             RMA_ROOT
//	Open MPI mpirun     OMPI_COMM_WORLD_*              one host: a socket; else mpirun's host, if rank 0 is there
//	MPICH mpirun,       PMI_RANK, PMI_SIZE, PMI_FD     where rank 0 says, through the launcher's own key-value
//	srun --mpi=pmi2                                    store (PMI-1)
//	Slurm srun          SLURM_PROCID, SLURM_STEP_*     one host: a socket; else the first node of the step
//	Kubernetes          JOB_COMPLETION_INDEX, RMA_SIZE the pod of index 0, by RMA_SERVICE
//	none of them        nothing                        alone: rank 0 of 1
//
// RMA_ROOT overrides the last column, RMA_LAUNCHER the choice of the row.
// [Find] reads the environment only. What takes sockets or talking to the
// launcher is done by the Prepare function of the configuration it returns,
// when the job is joined.
//
// # Who serves
//
// These launchers know nothing of the wire-up server of package wireup: rank
// 0 runs it within its own process, and the other ranks dial until it is there.
// Under rmarun, and where a user sets RMA_RANK by hand, a server is expected at
// RMA_ROOT; RMA_SERVE=1 has rank 0 serve there too, RMA_SERVE=0 has it dial
// under any launcher.
//
// # Who is admitted
//
// Knowledge of the job's secret admits (package wireup). It is RMA_TOKEN, or in
// the file RMA_TOKEN_FILE; else what the launcher gives to the processes of the
// job and to nobody else (Open MPI's transport key; what rank 0 publishes
// through PMI). On one host the ranks meet at a socket in a directory that only
// their user may enter, and look at each other's user: that needs no secret. Every
// other job without one is refused when it is joined, whoever started it
// (wireup.ErrNoToken), unless there is TLS or RMA_INSECURE=1: whoever reached the
// port could join, and write to the ranks' memory.
//
// # Files
//
//	jobenv.go       Find, the launchers in their order
//	openmpi.go, slurm.go, kubernetes.go   one launcher each
//	pmi.go          MPICH, and all that speak PMI-1; pmiwire.go its lines
//	hostlist.go     node[01-03,7]
//	root.go         where to meet: RMA_ROOT, derived sockets and ports
//	dir_unix.go     the directory of sockets; dir_other.go
//
// It may import internal/wireup. tests/launchers runs it under the real ones.
package jobenv
