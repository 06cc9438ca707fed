// Package command has the main function that the example programs share.
package command

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
)

// Main parses the command line, which has flags only, and calls run, with a context that ends at an
// interrupt. It ends the program if run fails.
func Main(run func(ctx context.Context) error) {
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(flag.CommandLine.Output(), "unexpected argument %q\n", flag.Arg(0))
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}
