package bench

import (
	"testing"
	"time"

	"github.com/seed33544411/rma/internal/testutil"
)

func TestMain(m *testing.M) {
	lastWords = 100 * time.Millisecond
	testutil.Main(m)
}
