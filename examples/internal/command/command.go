// Package command has the main function that the example programs share.
package command

import (
	"context"
	"flag"
	"log"
	"os"
	"os/signal"
)

// Main parses the command line and calls run, with a context that ends at an interrupt. It ends
// the program if run fails.
func Main(run func(ctx context.Context) error) {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}
