package main

import (
	"fmt"
	"log/slog"
	"net"

	"github.com/spf13/cobra"

	"github.com/seed33544411/rma/internal/bench/session"
)

func serveCommand(s streams) *cobra.Command {
	var o session.ServeOptions
	var shared secret
	cmd := &cobra.Command{
		Use: "serve ADDR", Short: "Run the remote rank for commands with --connect",
		Long: `Listen on ADDR (host:port, or :port for all addresses) and act as the second
rank for one client after another, until interrupted. The client chooses the
measurement and the fabric.

Anyone who can reach ADDR and knows the secret can make this process allocate
memory and use its links. The secret has the form of a job's secret: at least 16
bytes, hexadecimal, in RMA_TOKEN or a file without access for others, the same for
the client. On a trusted network, RMA_INSECURE=1 on both sides disables the secret.`,
		Example: `  export RMA_TOKEN=$(openssl rand -hex 16)   # and the same where the client runs
  rmabench serve :7471
  rmabench serve 10.0.0.1:7471 --once --token-file ~/.rmabench-token`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usage(fmt.Errorf("want one address such as :7471 (see %s --help)", cmd.CommandPath()))
			}
			if err := new(address).Set(args[0]); err != nil {
				return usage(fmt.Errorf("address %q: want host:port or :port: %w", args[0], err))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if o.Token, err = shared.read(s.err); err != nil {
				return err
			}
			o.Log = slog.New(slog.NewTextHandler(s.err, &slog.HandlerOptions{Level: slog.LevelWarn}))
			o.Ready = func(a net.Addr) { fmt.Fprintf(s.out, "serving on %v\n", a) }
			return session.Serve(cmd.Context(), args[0], o)
		},
	}
	cmd.Flags().BoolVar(&o.Once, "once", false, "exit after one client, with its result as exit code")
	shared.flags(cmd.Flags())
	return cmd
}
