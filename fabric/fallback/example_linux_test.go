package fallback_test

import (
	"fmt"

	"github.com/seed33544411/rma/fabric/fallback"
	"github.com/seed33544411/rma/fabric/sim"
	"github.com/seed33544411/rma/fabric/tcp"
)

// A link whose endpoints are connected over tcp if the simulated network does not connect them.
func ExampleNew() {
	first, err := sim.NewNetwork(sim.Options{}).NewLink()
	if err != nil {
		fmt.Println(err)
		return
	}
	second, err := tcp.Open(&tcp.Config{Named: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	l, err := fallback.New(first, second)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer l.Close()
	fmt.Println(l.Name(), l.Usable())
	// Output: sim <nil>
}
