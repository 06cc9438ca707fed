package launch

import (
	"os"
	"strconv"
	"strings"

	"github.com/seed33544411/rma/internal/wireup"
)

// EnvLocalSize is the number of the job's processes on this host.
const EnvLocalSize = "RMA_LOCAL_SIZE"

// jobVars are inherited from no one: a launcher inside a job starts a job of
// its own.
var jobVars = map[string]bool{
	wireup.EnvRank: true, wireup.EnvSize: true, wireup.EnvRoot: true, wireup.EnvToken: true,
	wireup.EnvTokenFile: true, wireup.EnvJob: true, wireup.EnvLocalRank: true, EnvLocalSize: true,
}

// environ is the environment of one rank: ours without an outer job, what the
// Spec adds, and the job.
func environ(extra []string, job wireup.Config) []string {
	var env []string
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(kv, "="); !jobVars[name] {
			env = append(env, kv)
		}
	}
	env = append(env, extra...)
	env = append(env, job.Environ()...)
	return append(env, EnvLocalSize+"="+strconv.Itoa(job.Size))
}
