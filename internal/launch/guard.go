package launch

import (
	"fmt"
	"io"
	"os"
	"os/exec"
)

// guardScript reads the process groups that live ("+ id") and have ended
// ("- id"). Its input ends when the launcher does, whatever way: what still
// lives then is killed. After a job that ended well its list is empty.
const guardScript = `trap '' INT TERM HUP QUIT PIPE USR1 USR2
live=
while read -r op id; do
	case $op in
	+) live="$live $id" ;;
	-) rest=; for g in $live; do [ "$g" = "$id" ] || rest="$rest $g"; done; live=$rest ;;
	esac
done
for g in $live; do kill -s KILL -- "-$g" 2>/dev/null; done
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

func (g *guard) add(pgid int)    { g.say("+", pgid) }
func (g *guard) remove(pgid int) { g.say("-", pgid) }

func (g *guard) say(op string, pgid int) {
	if g.cmd != nil {
		fmt.Fprintf(g.in, "%s %d\n", op, pgid) // a guard that died guards nothing: no harm to the job
	}
}

func (g *guard) close() {
	if g.cmd != nil {
		g.in.Close()
		_ = g.cmd.Wait()
	}
}
