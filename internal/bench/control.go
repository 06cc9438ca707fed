package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Control is the slow channel between the two measuring ranks. It carries plans,
// keys and verdicts between measurements, never during one.
type Control interface {
	// Rank is 0 for the side that measures and reports, 1 for the other.
	Rank() int

	// Exchange sends mine to the other side and returns what the other side passed to
	// its Exchange of the same number. It fails when ctx ends or the other side is
	// gone.
	Exchange(ctx context.Context, mine []byte) ([]byte, error)
}

// KV is the part of a job's wire-up that NewControl needs.
type KV interface {
	Put(ctx context.Context, key string, val []byte) error
	Get(ctx context.Context, rank int, key string) ([]byte, error)
}

// kvControl exchanges values under numbered keys.
type kvControl struct {
	kv   KV
	rank int
	n    int
}

// NewControl returns the control channel between ranks 0 and 1 of a job. rank is the
// caller's and must be one of them. A job has one control channel at a time.
func NewControl(kv KV, rank int) Control { return &kvControl{kv: kv, rank: rank} }

func (c *kvControl) Rank() int { return c.rank }

func (c *kvControl) Exchange(ctx context.Context, mine []byte) ([]byte, error) {
	key := fmt.Sprintf("bench/%d", c.n)
	c.n++
	if err := c.kv.Put(ctx, key, mine); err != nil {
		return nil, fmt.Errorf("exchange with the other rank: %w", err)
	}
	theirs, err := c.kv.Get(ctx, 1-c.rank, key)
	if err != nil {
		return nil, fmt.Errorf("exchange with the other rank: %w", err)
	}
	return theirs, nil
}

// ErrPeerFailed is wrapped by errors that the other rank reports of itself.
var ErrPeerFailed = errors.New("the other rank failed")

// verdict is the outcome that a side sends at the end of every step.
type verdict struct {
	Err string `json:"err,omitempty"`
}

// lastWords is how long a failed side waits for the other to receive its error: the
// other must first reach the end of its point. A variable for tests.
var lastWords = 3 * time.Second

// maxVerdict bounds the part of the other side's error text that is repeated.
const maxVerdict = 400

// agree ends a step. Both sides call it with their own outcome, and both return an
// error if either failed. The caller's own error comes first; the other side's is added if it differs.
func agree(ctx context.Context, c Control, mine error) error {
	var v verdict
	if mine != nil {
		v.Err = mine.Error()
	}
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if mine != nil {
		// Report the error with a time limit: the other side may be its cause.
		ctx, cancel := context.WithTimeout(ctx, lastWords)
		defer cancel()
		theirs, err := c.Exchange(ctx, b)
		if err == nil {
			err = heard(theirs)
		}
		if errors.Is(err, ErrPeerFailed) && !bytes.Equal(theirs, b) { // the same, such as a setting of both, is said once
			return fmt.Errorf("%w; %w", mine, err)
		}
		return mine
	}
	theirs, err := c.Exchange(ctx, b)
	if err != nil {
		return err
	}
	return heard(theirs)
}

// heard returns the other side's verdict as an error.
func heard(b []byte) error {
	var v verdict
	if err := json.Unmarshal(b, &v); err != nil {
		return fmt.Errorf("exchange with the other rank: not a verdict: %w", err)
	}
	if v.Err != "" {
		return fmt.Errorf("%w: %s", ErrPeerFailed, printable(v.Err, maxVerdict))
	}
	return nil
}

// printable cuts s to n bytes and replaces control characters.
func printable(s string, n int) string {
	if len(s) > n {
		s = s[:n] + "…"
	}
	r := []rune(s)
	for i := range r {
		if r[i] < 0x20 || r[i] == 0x7f {
			r[i] = ' '
		}
	}
	return string(r)
}
