package bringup

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/seed33544411/rma/logp"
	"github.com/seed33544411/rma/sampling"
)

// figures are the cost model's parameters of paths over a link, from lower ranks to higher
// ones and back. They are immutable once shared.
type figures struct {
	Up    *logp.Params   `json:"up"`
	Down  *logp.Params   `json:"down"`
	Class sampling.Class `json:"class"` // of the pair that has measured them; empty if not measured

	source string // "defaults", "profile", "measurement", or the rank that has published them
}

// publishedVersion is the version of the format of published.
const publishedVersion = 2

// published is the value that the rank that has measured a link publishes to the others, as
// JSON under the key "profile/" and the link's name. If the measurement failed, the value
// is empty.
type published struct {
	Version int `json:"version"`
	figures
	Copies *copyThresholds `json:"copies,omitempty"` // of links that copy with the processor
}

// parsePublished parses the value of another rank, which is not trusted.
func parsePublished(b []byte) (p published, err error) {
	fail := func(err error) (published, error) {
		return published{}, fmt.Errorf("parameters from another rank: %w", err)
	}
	if len(b) == 0 {
		return fail(errors.New("none, because its measurement failed"))
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		return fail(err)
	}
	switch _, err := d.Token(); {
	case err != io.EOF:
		return fail(errors.New("extra data at the end"))
	case p.Version != publishedVersion:
		return fail(fmt.Errorf("version %d, not %d", p.Version, publishedVersion))
	case !p.Class.Known():
		return fail(fmt.Errorf("unknown class %.40q", p.Class))
	case p.Up == nil || p.Down == nil:
		return fail(errors.New("a direction is missing"))
	}
	if err := errors.Join(p.Up.Validate(), p.Down.Validate(), p.Copies.validate()); err != nil {
		return fail(err)
	}
	return p, nil
}
