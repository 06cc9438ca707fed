package collective

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/seed33544411/rma/coll"
)

// A series is as long as asked, although its first calls take much longer than the others.
func TestCallsFillTheTime(t *testing.T) {
	t.Parallel()
	const span = 100 * time.Millisecond
	teams(t, 2, func(ctx context.Context, team *coll.Team) error {
		n := 0
		calls, err := callsIn(ctx, team, "allreduce", func() error {
			if n++; n <= warmUps {
				time.Sleep(20 * time.Millisecond) // sleep: the first calls are slow
			}
			return nil
		}, span)
		// The slow calls alone would make it five; one without a pause and a barrier take well
		// below 10 ms, also on a busy machine.
		if err == nil && calls <= 10 {
			err = fmt.Errorf("%d calls", calls)
		}
		return err
	})
}
