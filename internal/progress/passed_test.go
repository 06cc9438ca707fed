//go:build unix

package progress

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/internal/cpu"
)

// passing is polls whose step ends every wait.
type passing struct{ polls }

func (p *passing) Step() bool { p.w.Finish(); return true }

// Who finds what it waits for in every first step polls the links nevertheless.
func TestWaitsThatStepsEndPoll(t *testing.T) {
	for _, c := range []struct {
		name string
		wait func(e *Engine, w *Waiter) error
	}{
		{"Wait", func(e *Engine, w *Waiter) error { return e.Wait(t.Context(), w) }},
		{"WaitAny", func(e *Engine, w *Waiter) error {
			_, err := e.WaitAny(t.Context(), 0, Waiters{w})
			return err
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := &passing{polls{w: &Waiter{}}}
			e := &Engine{proto: p, policy: cpu.Default()} // nobody else polls
			e.links = append(e.links, p)
			for range 10 * cheapPolls {
				p.w.Init()
				require.NoError(t, c.wait(e, p.w))
			}
			require.Equal(t, 10, p.n)
		})
	}
}
