package launch

import (
	"os"
	"strconv"
	"strings"

	"github.com/seed33544411/rma/internal/wireup"
)

// EnvLocalSize is the number of the job's processes on this host.
const EnvLocalSize = "RMA_LOCAL_SIZE"

const envHangTimeout = "RMA_HANG_TIMEOUT"

// jobVars are inherited from no one: a launcher inside a job starts a job of
// its own.
var jobVars = map[string]bool{
	wireup.EnvRank: true, wireup.EnvSize: true, wireup.EnvRoot: true, wireup.EnvToken: true,
	wireup.EnvTokenFile: true, wireup.EnvJob: true, wireup.EnvLocalRank: true, EnvLocalSize: true,
}

// environ is the environment of one rank: ours without an outer job, what the
// Spec adds, and the job.
func environ(s *Spec, job wireup.Config) []string {
	var env []string
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(kv, "="); !jobVars[name] {
			env = append(env, kv)
		}
	}
	if s.HangTimeout > 0 {
		env = append(env, envHangTimeout+"="+s.HangTimeout.String())
	}
	env = append(env, s.Env...)
	env = append(env, job.Environ()...)
	return append(env, EnvLocalSize+"="+strconv.Itoa(job.Size))
}
