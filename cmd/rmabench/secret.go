package main

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"github.com/spf13/pflag"

	"github.com/seed33544411/rma/internal/jobenv"
	"github.com/seed33544411/rma/internal/wireup"
)

// partnerFlags are the flags of commands whose other rank may be on another host.
type partnerFlags struct {
	connect string
	token   secret
}

// flags defines --connect and those of the secret.
func (p *partnerFlags) flags(fl *pflag.FlagSet, measure string) {
	fl.Var((*address)(&p.connect), "connect", measure+" against rmabench serve at this `host:port`, which may start up to "+wireup.DefaultTimeout.String()+" later")
	p.token.flags(fl)
}

// address is a host:port of the command line.
type address string

func (a *address) String() string { return string(*a) }
func (a *address) Type() string   { return "string" }

// Set implements pflag.Value.
func (a *address) Set(s string) error {
	_, port, err := net.SplitHostPort(s)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	*a = address(s)
	return err
}

// inJob reports whether the ranks are those of a launcher's job. silent reports whether this
// rank is one without results to show.
func (p *partnerFlags) inJob() (yes, silent bool) {
	if p.connect != "" || !jobenv.InJob() {
		return false, false
	}
	return true, showsNothing()
}

// showsNothing reports whether this is a rank of a job that has no results to show or write.
func showsNothing() bool {
	cfg, err := jobenv.FromEnv()
	return err == nil && cfg.Rank > 0
}

// secret is the secret shared with serve.
type secret struct{ text, file string }

func (s *secret) flags(fl *pflag.FlagSet) {
	fl.StringVar(&s.file, "token-file", "", "file with the secret shared by serve and its clients, hexadecimal (default: $RMA_TOKEN, else the file $RMA_TOKEN_FILE)")
	fl.StringVar(&s.text, "token", "", "the secret itself")
	if err := fl.MarkHidden("token"); err != nil {
		panic(err) // the flag exists
	}
}

// read returns the secret of the flags, else that of the environment. It warns of the flag
// that makes the secret visible to others.
func (s *secret) read(warn io.Writer) ([]byte, error) {
	if s.text != "" {
		fmt.Fprintln(warn, "rmabench: warning: --token is deprecated, as every user of the host can read it: use RMA_TOKEN or --token-file")
		b, err := hex.DecodeString(s.text)
		if err != nil {
			return nil, usage(errors.New("--token: want hexadecimal digits (openssl rand -hex 16 creates a token)"))
		}
		return b, nil
	}
	b, err := wireup.TokenFrom(os.Getenv)
	if s.file != "" {
		b, err = wireup.ReadToken(s.file, "--token-file")
	}
	if err != nil {
		return nil, usage(err)
	}
	return b, nil
}
