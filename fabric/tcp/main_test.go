package tcp

import (
	"fmt"
	"os"
	"testing"

	"github.com/seed33544411/rma/internal/testutil"
)

// childMain, if set, is the program of the processes that tests start with floodEnv.
var childMain func(spec string) error

// floodEnv makes the test binary a stranger: the address to which it connects, what it says,
// and how many connections it opens, one after the other.
const floodEnv = "TCP_TEST_STRANGER"

func TestMain(m *testing.M) {
	if spec, is := os.LookupEnv(floodEnv); is && childMain != nil {
		if err := childMain(spec); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	testutil.Main(m)
}
