package bringup

import (
	"fmt"
	"strings"
	"time"

	"github.com/seed33544411/rma/internal/message"
	"github.com/seed33544411/rma/logp"
)

// driftEvery is how often a peer's link is reported to have changed, at most.
const driftEvery = 10 * time.Minute

// Drifted handles the report of the channel to a rank that the link's times differ from the
// measurement in these modes. The channel's plans adjust by themselves; Drifted logs the
// report and retires the saved figures, so that the next start measures again. Owner's.
func (l *Links) Drifted(rank int, ch *message.Channel, modes logp.ModeSet, tasks *Tasks) {
	tasks.prog.AssertOwned()
	now := time.Now()
	if w := &l.warned[rank]; w.IsZero() || now.Sub(*w) >= driftEvery {
		*w = now
	} else {
		return
	}
	link := l.to[rank]
	name, of, ways := l.open[link].Name(), l.Path(rank).Of, slower(ch, modes)
	// In a goroutine: the links must not wait for logs and files.
	tasks.Go(func() {
		l.Log.Warn("rma: link differs from its measurement", "rank", rank, "link", name, "slower", ways)
		store, key := l.Profile(link, of)
		if store == nil {
			return
		}
		if err := store.Retire(key); err != nil {
			l.Log.Warn("rma: saved parameters of a link not set aside", "link", name, "err", err)
		}
	})
}

// slower describes by which factor each mode has become slower.
func slower(ch *message.Channel, modes logp.ModeSet) string {
	var s []string
	for m := range logp.Mode(logp.NumModes) {
		if modes.Has(m) {
			f := 1.
			if ch != nil {
				f = ch.Stats().Learn.Modes[m].Factor
			}
			s = append(s, fmt.Sprintf("%v %.1f times", m, f))
		}
	}
	return strings.Join(s, ", ")
}
