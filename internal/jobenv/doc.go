// Package jobenv finds the job of this process in the environment that its launcher has set,
// so that rma.Open needs no arguments under any launcher.
//
//	launcher            knows                          the ranks meet at
//	rmarun, by hand     RMA_RANK, RMA_SIZE             RMA_ROOT
//	Open MPI mpirun     OMPI_COMM_WORLD_*              one host: a socket; else mpirun's host, if rank 0 is there
//	MPICH mpirun,       PMI_RANK, PMI_SIZE, PMI_FD     the address that rank 0 publishes in the launcher's
//	srun --mpi=pmi2                                    key-value store (PMI-1)
//	Slurm srun          SLURM_PROCID, SLURM_STEP_*     one host: a socket; else the first node of the step
//	Kubernetes          JOB_COMPLETION_INDEX, RMA_SIZE the pod of index 0, by RMA_SERVICE
//	none of them        nothing                        alone: rank 0 of 1
//
// RMA_ROOT overrides the last column, RMA_LAUNCHER the choice of the row. [Find] only reads
// the environment. The Prepare function of the configuration that it returns opens sockets
// and communicates with the launcher, when the job is joined.
//
// # Who serves
//
// Except for rmarun, these launchers do not know the wire-up server of package wireup: rank
// 0 runs it within its own process, and the other ranks dial until it answers. Under rmarun,
// and if a user sets RMA_RANK by hand, a server is expected at RMA_ROOT. RMA_SERVE=1 makes
// rank 0 run the server there too; RMA_SERVE=0 makes it dial under any launcher.
//
// # Who is admitted
//
// A process is admitted if it knows the job's secret (package wireup): RMA_TOKEN, or the
// contents of RMA_TOKEN_FILE; otherwise a value that only the processes of the job get from
// the launcher (Open MPI's transport key; a value that rank 0 publishes through PMI). On one
// host the ranks meet at a socket in a directory that only their user may enter, and check
// each other's user: that needs no secret. Every other job without a secret is refused when
// it is joined (wireup.ErrNoToken), unless there is TLS or RMA_INSECURE=1: any process that
// reached the port could join, and write to the ranks' memory.
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
