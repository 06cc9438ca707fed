package jobenv

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
)

// errPMI says that the launcher's answer violates PMI-1.
var errPMI = errors.New("PMI protocol error")

// pmiWire is the client's end of PMI-1: lines of key=value pairs, the command first; every
// command has an answer of one line.
type pmiWire struct {
	conn net.Conn
	in   *bufio.Reader
	ctx  context.Context
	end  func() bool
}

// maxPMILine bounds an answer in bytes: values have at most 1024.
const maxPMILine = 4096

func newPMIWire(ctx context.Context, conn net.Conn) *pmiWire {
	w := &pmiWire{conn: conn, in: bufio.NewReaderSize(conn, maxPMILine), ctx: ctx}
	w.end = context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	return w
}

func (w *pmiWire) stop() { w.end() }

// call sends one command and returns the pairs of its answer, whose command must be want.
func (w *pmiWire) call(line, want string) (map[string]string, error) {
	if _, err := w.conn.Write([]byte(line + "\n")); err != nil {
		return nil, w.why(line, err)
	}
	cmd, _, _ := strings.Cut(line, " ")
	b, err := w.in.ReadSlice('\n')
	if err != nil {
		return nil, w.why(cmd, err)
	}
	pairs := map[string]string{}
	for _, f := range strings.Fields(string(b)) {
		k, v, _ := strings.Cut(f, "=")
		pairs[k] = v
	}
	if rc := pairs["rc"]; pairs["cmd"] != want || rc != "" && rc != "0" {
		return nil, fmt.Errorf("%w: %q answered by %.100q", errPMI, cmd, b)
	}
	return pairs, nil
}

// why returns the error of a command; it names the end of the context if that is the cause.
func (w *pmiWire) why(cmd string, err error) error {
	if w.ctx.Err() != nil {
		return fmt.Errorf("%s: %w: not all processes that the launcher started have joined", cmd, w.ctx.Err())
	}
	return fmt.Errorf("%s: %w", cmd, err)
}

// share publishes the value of one rank under key, and returns it on all ranks.
func (w *pmiWire) share(publish bool, key, value string) (string, error) {
	if _, err := w.call("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init"); err != nil {
		return "", err
	}
	a, err := w.call("cmd=get_my_kvsname", "my_kvsname")
	if err != nil {
		return "", err
	}
	kvs := a["kvsname"]
	if publish {
		if _, err := w.call("cmd=put kvsname="+kvs+" key="+key+" value="+value, "put_result"); err != nil {
			return "", err
		}
	}
	if _, err := w.call("cmd=barrier_in", "barrier_out"); err != nil {
		return "", err
	}
	if !publish {
		a, err := w.call("cmd=get kvsname="+kvs+" key="+key, "get_result")
		if err != nil {
			return "", err
		}
		value = a["value"]
	}
	// Without finalize, the launcher would take the end of the process for a crash.
	if _, err := w.call("cmd=finalize", "finalize_ack"); err != nil {
		return "", err
	}
	return value, nil
}
