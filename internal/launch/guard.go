package launch

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"

	"github.com/seed33544411/rma/internal/wireup"
)

// guardScript reads the process groups that have started ("+ id") and ended ("- id"). Its
// input ends when the launcher ends, for whatever reason: the script then kills the groups
// that still live. After a regular end of the job its list is empty.
//
// Between "s RMA_JOB=name" and "e" ranks are being started: one may run, and have children,
// before its group is reported. If the launcher ends then, the script finds these processes
// by their environment.
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

// guard is the shell that runs guardScript, or nothing if there is no shell. It is for one
// goroutine at a time.
type guard struct {
	cmd *exec.Cmd
	in  io.WriteCloser
}

// startGuard starts the guard; dir is removed when the launcher has ended.
func startGuard(dir string) *guard {
	g := &guard{}
	cmd := exec.Command("/bin/sh", "-c", guardScript, "rma-guard", dir)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	ownSession(cmd) // so that signals to the launcher's group do not reach the guard
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
		fmt.Fprintf(g.in, "%s %s\n", op, arg) // an error means that the guard has died, which does not harm the job
	}
}

func (g *guard) close() {
	if g.cmd != nil {
		g.in.Close()
		_ = g.cmd.Wait()
	}
}
