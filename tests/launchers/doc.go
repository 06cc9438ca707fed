// Package launchers runs jobs under the launchers that people have: Open MPI's
// and MPICH's mpirun, and Slurm's srun, whose daemons the test starts for itself
// with a configuration of two nodes on this host.
//
//	tests/launchers/run                 or: make launchers
//	tests/packages missing launchers    the Debian packages that it takes and that are not there
//
// The test binary is also the program of the ranks. Launchers of several hosts
// are real, the hosts are not: ssh is replaced by a script that stays here, and
// Hydra forks.
//
// Without RMA_LAUNCHERS=1, which run sets, the tests are skipped: `go test ./...`
// is not expected to start daemons. With RMA_REQUIRE_LAUNCHERS=1 a launcher that
// is not installed is a failure.
package launchers
