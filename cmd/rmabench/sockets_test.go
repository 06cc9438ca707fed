//go:build unix

package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/bench/sockets"
)

// Every transport is measured between processes, in turn.
func TestSocketsOverRealProcesses(t *testing.T) {
	code, out, errs := rmabench(t, strings.Fields("sockets --rounds 1 --busy 0,1 --conns 2 --workloads echo --time 1ms --format json")...)
	require.Equal(t, exitOK, code, errs)
	var names []string
	for i, r := range jsonLines[sockets.Result](t, out) {
		names = append(names, r.Transport)
		require.Equal(t, i/len(sockets.Transports), r.Busy)
	}
	require.Equal(t, append(sockets.Transports, sockets.Transports...), names)
	for args, says := range map[string]string{
		"--transports udp": "want [rmanet-shm", "--conns 0": "connections", "--busy -1": "busy threads", "--rounds 0": "rounds", "--format csv": "want table", "8": "unexpected argument",
	} {
		code, _, errs := rmabench(t, append([]string{"sockets"}, strings.Fields(args)...)...)
		require.Equal(t, exitUsage, code, "%s: %s", args, errs)
		require.Contains(t, errs, says)
	}
	code, _, errs = rmabench(t, strings.Fields("sockets --rounds 1 --busy 0 --transports unix --workloads ftp")...)
	require.Equal(t, exitUsage, code)
	require.Contains(t, errs, `"ftp": this program has`)
}
