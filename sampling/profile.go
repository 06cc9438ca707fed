package sampling

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/seed33544411/rma/fabric"
)

// Version is the version of the measurement's meaning: profiles of other versions are not
// used. It changes whenever the meaning of a table changes.
const Version = "plogp-5"

// Key identifies a profile.
type Key struct {
	Link    string `json:"link"`             // fabric.Link.Name
	Device  string `json:"device,omitempty"` // adapter or interface, if the link has several
	Class   Class  `json:"class,omitempty"`
	Version string `json:"version"`
}

// maxName bounds the length of each part of a key.
const maxName = 128

func (k Key) validate() error {
	for _, s := range []string{k.Link, k.Device, string(k.Class), k.Version} {
		if len(s) > maxName {
			return fmt.Errorf("profile key: field of %d bytes, at most %d", len(s), maxName)
		}
	}
	if k.Class.Known() {
		return nil
	}
	return fmt.Errorf("unknown peer class %q", k.Class)
}

// Caps are the properties of a link that the figures depend on.
type Caps struct {
	MaxSGE         int  `json:"max_sge"`
	MaxInline      int  `json:"max_inline"`
	MapsAlloc      bool `json:"maps_alloc"`
	TargetProgress bool `json:"target_progress"`
}

func capsOf(c fabric.Caps) Caps {
	return Caps{MaxSGE: c.MaxSGE, MaxInline: c.MaxInline, MapsAlloc: c.MapsAlloc, TargetProgress: c.TargetProgress}
}

// Profile is a saved measurement.
type Profile struct {
	Key    Key
	Caps   Caps
	Made   time.Time
	Tables Tables

	digest Digest // of the tables as they were read; zero if they were not
}

// NewProfile returns the profile that Store.Save keeps of a result. Run saves it if
// Options.Store is set.
func NewProfile(k Key, c fabric.Caps, r Result) *Profile {
	return &Profile{Key: k, Caps: capsOf(c), Made: r.Made, Tables: r.Tables}
}

// file is a profile on disk. The tables are kept in their saved form, so that their digest
// needs no second encoding.
type file struct {
	Format int             `json:"format"`
	Key    Key             `json:"key"`
	Caps   Caps            `json:"caps"`
	Made   time.Time       `json:"made"`
	Tables json.RawMessage `json:"tables"`
}

const (
	// profileFormat 1 had single operations only: a start with such a profile would have no
	// Extra.
	profileFormat = 2
	// maxProfile bounds a file: three tables of three curves of 60 points of 60 bytes are
	// 40 KiB.
	maxProfile = 256 << 10
)

// Marshal returns the profile in its saved form.
func (p *Profile) Marshal() ([]byte, error) {
	t, err := marshalTables(&p.Tables)
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(file{profileFormat, p.Key, p.Caps, p.Made, t})
	return append(b, '\n'), err
}

// ParseProfile parses the result of Marshal. Errors wrap ErrProfile, or ErrStale for a
// format of another version.
func ParseProfile(b []byte) (*Profile, error) {
	if len(b) > maxProfile {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrProfile, len(b), maxProfile)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	var f file
	if err := d.Decode(&f); err != nil {
		var v struct {
			Format int `json:"format"`
		}
		if json.Unmarshal(b, &v) == nil && v.Format > profileFormat {
			return nil, fmt.Errorf("%w: format %d, this version reads %d", ErrStale, v.Format, profileFormat)
		}
		return nil, fmt.Errorf("%w: %w", ErrProfile, err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("%w: extra data behind the profile", ErrProfile)
	}
	if f.Format != profileFormat {
		return nil, fmt.Errorf("%w: format %d, this version reads %d", ErrStale, f.Format, profileFormat)
	}
	if err := f.Key.validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrProfile, err)
	}
	p := &Profile{Key: f.Key, Caps: f.Caps, Made: f.Made, digest: digestOf(f.Tables)}
	var err error
	if p.Tables, err = parseTables(f.Tables); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrProfile, err)
	}
	return p, nil
}
