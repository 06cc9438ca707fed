package launch

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"

	"github.com/seed33544411/rma/internal/wireup"
)

// guardScript reads the process groups that live ("+ id") and have ended
// ("- id"). Its input ends when the launcher does, whatever way: what still
// lives then is killed. After a job that ended well its list is empty.
//
// Between "s RMA_JOB=name" and "e" ranks are being started: one may run, and
// have children, before its group is told. A launcher that ends then leaves
// ranks that only their environment gives away.
const guardScript = `trap '' INT TERM HUP QUIT PIPE USR1 USR2
live=
job=
while read -r op id; do
	case $op in
	s) job=$id ;;
	e) job= ;;
	+) live="$live $id" ;;
	-) rest=; for g in $live; do [ "$g" = "$id" ] || rest="$rest $g"; done; live=$rest ;;
	esac
done
for g in $live; do kill -s KILL -- "-$g" 2>/dev/null; done
if [ -n "$job" ]; then
	for p in /proc/[0-9]*; do
		tr '\000' '\n' 2>/dev/null <"$p/environ" | grep -qxF -- "$job" && kill -s KILL "${p#/proc/}" 2>/dev/null
	done
fi
[ -z "$1" ] || rm -rf -- "$1"
exit 0
`

// guard is the shell that runs guardScript, or nothing where there is no shell.
// For one goroutine.
type guard struct {
	cmd *exec.Cmd
	in  io.WriteCloser
}

// startGuard starts the guard; dir is removed when the launcher has ended.
func startGuard(dir string) *guard {
	g := &guard{}
	cmd := exec.Command("/bin/sh", "-c", guardScript, "rma-guard", dir)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	ownSession(cmd) // a signal to the launcher's group is not for the guard
	in, err := cmd.StdinPipe()
	if err != nil {
		return g
	}
	if cmd.Start() == nil {
		g.cmd, g.in = cmd, in
	}
	return g
}

func (g *guard) starting(job string) { g.say("s", wireup.EnvJob+"="+job) }
func (g *guard) started()            { g.say("e", "") }
func (g *guard) add(pgid int)        { g.say("+", strconv.Itoa(pgid)) }
func (g *guard) remove(pgid int)     { g.say("-", strconv.Itoa(pgid)) }

func (g *guard) say(op, arg string) {
	if g.cmd != nil {
		fmt.Fprintf(g.in, "%s %s\n", op, arg) // a guard that died guards nothing: no harm to the job
	}
}

func (g *guard) close() {
	if g.cmd != nil {
		g.in.Close()
		_ = g.cmd.Wait()
	}
}
