package main

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/bench"
	"github.com/seed33544411/rma/internal/testutil"
	"github.com/seed33544411/rma/internal/wireup"
)

// Ranks of a job on different hosts, each with a loopback of its own, measure over the
// network between them.
func TestMeasureInAJobOfTwoHosts(t *testing.T) {
	t.Parallel()
	do := testutil.TwoHosts(t)
	for _, c := range []string{"lat --op put --sizes 8 --fabric tcp", "rate --op send --sizes 8 --fabric auto"} {
		t.Run(c, func(t *testing.T) {
			ctx := testutil.Context(t, testutil.Limit)
			var ln net.Listener
			var err error
			do[0](func() { ln, err = net.Listen("tcp", "192.0.2.1:0") })
			require.NoError(t, err)
			token := bytes.Repeat([]byte{0x5a}, 16)
			srv, err := wireup.Serve(ctx, ln, wireup.ServerConfig{Size: 2, Token: token})
			require.NoError(t, err)
			defer func() { require.NoError(t, srv.Close()) }()
			var cmds [2]*exec.Cmd
			var out, errs [2]bytes.Buffer
			for i := range do {
				cmds[i] = exec.CommandContext(ctx, os.Args[0], fast(append(strings.Fields(c), "--format", "json")...)...)
				cmds[i].Env = append(os.Environ(), envCommand+"=1", fmt.Sprintf("RMA_RANK=%d", i), "RMA_SIZE=2", "RMA_ROOT="+ln.Addr().String(), "RMA_TOKEN="+hex.EncodeToString(token))
				cmds[i].Stdout, cmds[i].Stderr = &out[i], &errs[i]
				do[i](func() { err = cmds[i].Start() })
				require.NoError(t, err)
			}
			for i, cmd := range cmds {
				require.NoError(t, cmd.Wait(), "rank %d: %s", i, &errs[i])
			}
			rs, err := bench.ReadJSON(&out[0])
			require.NoError(t, err)
			require.Len(t, rs, 1)
			require.Equal(t, "tcp", rs[0].Fabric)
			require.Empty(t, out[1].String())
		})
	}
}
