//go:build linux

package ibv_test

import (
	"errors"
	"fmt"
	"log"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/fabric/ibv"
)

// Opens a link over the first usable device, or prints why there is none. The output
// depends on the host, so the example is compiled but not run.
func ExampleOpen() {
	l, err := ibv.Open(ibv.Options{})
	switch {
	case errors.Is(err, fabric.ErrNotSupported):
		fmt.Println("no RDMA here:", err)
		return
	case err != nil:
		log.Fatal(err)
	}
	defer l.Close()
	caps := l.Caps()
	fmt.Println(l.Name(), caps.MaxSGE, "pieces a request,", caps.MaxReads, "reads at once")
}
