package jobenv

import (
	"fmt"
	"net"
)

// slurm reads the variables that srun sets for the tasks of a step. A batch script and a
// shell of salloc are not steps: a program started there directly is a job of its own.
func slurm(e env) (*place, error) {
	size := "SLURM_STEP_NUM_TASKS"
	if e(size) == "" {
		size = "SLURM_NTASKS"
	}
	c, err := e.numbers("SLURM_PROCID", size, "SLURM_LOCALID")
	if err != nil {
		return nil, err
	}
	// Job numbers are unique in a cluster until they wrap; the port of this srun
	// distinguishes jobs with the same number.
	p := &place{
		id:      fmt.Sprintf("slurm %s %s.%s %s", e("SLURM_CLUSTER_NAME"), e("SLURM_JOB_ID"), e("SLURM_STEP_ID"), e("SLURM_STEP_LAUNCHER_PORT")),
		oneHost: e.is("SLURM_STEP_NUM_NODES", 1),
		noRoot:  "SLURM_STEP_NODELIST is missing",
	}
	p.Config = c
	p.TokenHint = "export RMA_TOKEN=$(openssl rand -hex 32) before srun, or srun --mpi=pmi2, which brings one"
	if p.oneHost {
		p.LocalSize = c.Size
		return p, nil
	}
	nodes := e("SLURM_STEP_NODELIST")
	if nodes == "" {
		return p, nil
	}
	first, err := firstHost(nodes)
	if err != nil {
		return nil, fmt.Errorf("SLURM_STEP_NODELIST: %w", err)
	}
	if here := e("SLURMD_NODENAME"); c.Rank == 0 && here != "" && here != first {
		p.noRoot = fmt.Sprintf("rank 0 runs on %s, not on the first node, %s", here, first)
		return p, nil
	}
	p.root = net.JoinHostPort(first, port(p.id))
	return p, nil
}
