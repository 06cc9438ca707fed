//go:build linux

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"

	"github.com/seed33544411/rma/internal/tempdir"
)

const usage = `softroce runs programs on real SoftRoCE, in a virtual machine if the host's kernel lacks it.

  softroce run [flags] -- program [args...]   run a program of this host inside
  softroce suite [flags] [packages...]        build and run the project's device tests
  softroce zoo [flags]                        the link's tests on devices like other adapters
  softroce rails [flags]                      puts and gets over two shaped networks
  softroce overlap [flags]                    transfers beside computation, between two guests
  softroce perftest [flags]                   Debian's perftest beside rmabench, in one boot
  softroce build -vm qemu|uml                 download or build the kernel now
  softroce doctor                             show what works here and what is missing
  softroce clean                              remove the cached kernels

Every command takes -h. See docs/softroce.md.
`

// The kernel kills a child whose starting thread ends (see ownGroup). The main
// thread lives as long as the process.
func init() { runtime.LockOSThread() }

func main() {
	if kind, ok := guestKind(); ok {
		guestMain(kind)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	code, err := dispatch(ctx, os.Args[1:])
	interrupted := ctx.Err() != nil
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
		code = 0
	case errors.Is(err, errUsage):
		say("%v", err)
		code = 2
	case interrupted:
		say("interrupted")
		code = 130
	case err != nil:
		say("%v", err)
		if code == 0 {
			code = harnessFailure
		}
	}
	os.Exit(code)
}

func dispatch(ctx context.Context, args []string) (int, error) {
	if len(args) == 0 {
		fmt.Fprint(os.Stderr, usage)
		return 2, nil
	}
	switch cmd, args := args[0], args[1:]; cmd {
	case "run":
		opt, err := parseRun(args, os.Stderr)
		if err != nil {
			return 0, err
		}
		return cmdRun(ctx, opt)
	case "suite":
		return cmdSuite(ctx, args)
	case "zoo":
		return cmdZoo(ctx, args)
	case "rails":
		return cmdRails(ctx, args)
	case "overlap":
		return cmdOverlap(ctx, args)
	case "perftest":
		return cmdPerf(ctx, args)
	case insidePerf:
		return cmdInsidePerf(ctx, args)
	case "build":
		return 0, cmdBuild(ctx, args)
	case "doctor":
		return cmdDoctor(ctx)
	case "clean":
		return 0, cmdClean()
	case "help", "-h", "--help":
		fmt.Print(usage)
		return 0, nil
	default:
		fmt.Fprint(os.Stderr, usage)
		return 0, usagef("no command %q", cmd)
	}
}

func cmdBuild(ctx context.Context, args []string) error {
	fs := flag.NewFlagSet("build", flag.ContinueOnError)
	vm := fs.String("vm", "qemu", "qemu or uml")
	if err := parseFlags(fs, args); err != nil {
		return err
	}
	c, err := openCache()
	if err != nil {
		return err
	}
	switch *vm {
	case "qemu":
		if err := requirePackages("qemu"); err != nil {
			return err
		}
		k, err := buildQemuKernel(ctx, c)
		if err == nil {
			fmt.Println(filepath.Dir(k.vmlinux))
		}
		return err
	case "uml":
		p, err := buildUML(ctx, c)
		if err == nil {
			fmt.Println(filepath.Dir(p))
		}
		return err
	}
	return usagef("-vm %q: want qemu or uml", *vm)
}

// cmdClean removes this tool's files from its cache, and no others that may be in the
// directory.
func cmdClean() error {
	c, err := openCache()
	if err != nil {
		return err
	}
	unlock, err := lockFile(filepath.Join(c.dir, "lock"), true, func() { say("waiting for a kernel build to end") })
	if err != nil {
		return err
	}
	defer unlock()
	for _, pat := range []string{"qemu-*", "uml-*", "building-*", "bin", "run/cpu*.lock"} {
		found, _ := filepath.Glob(filepath.Join(c.dir, pat))
		for _, p := range found {
			if err := os.RemoveAll(p); err != nil {
				return err
			}
		}
	}
	tempdir.Sweep(c.runs(), runPrefix)
	_ = os.Remove(c.runs()) // stays if a run is in progress
	_ = os.Remove(filepath.Join(c.dir, "lock"))
	_ = os.Remove(c.dir)
	return nil
}
