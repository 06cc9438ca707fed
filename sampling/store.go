package sampling

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/seed33544411/rma/fabric"
)

// DefaultMaxAge is how long a profile is valid: firmware, kernels and other load change
// within weeks, and a new measurement costs 50 ms.
const DefaultMaxAge = 30 * 24 * time.Hour

// Store is a directory of profiles, one file per key. Any number of goroutines and
// processes may use it: files appear completely or not at all.
type Store struct {
	// Dir is created by the first save. See DefaultDir.
	Dir string
	// MaxAge of a profile; zero means DefaultMaxAge.
	MaxAge time.Duration

	now func() time.Time // for tests
}

// DefaultDir returns the directory rma in the user's cache directory.
func DefaultDir() (string, error) {
	d, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("sampling: directory for profiles: %w", err)
	}
	return filepath.Join(d, "rma"), nil
}

// Path returns the file of key k: readable parts, and a digest that makes it unique.
func (s *Store) Path(k Key) string {
	b, _ := json.Marshal(k) // strings only: cannot fail
	sum := sha256.Sum256(b)
	name := "plogp"
	for _, part := range []string{k.Link, k.Device, string(k.Class)} {
		if part = plain(part); part != "" {
			name += "-" + part
		}
	}
	return filepath.Join(s.Dir, fmt.Sprintf("%s-%x.json", name, sum[:6]))
}

// plain keeps the characters that are safe in a file name.
func plain(s string) string {
	s = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' {
			return r
		}
		return -1
	}, s)
	return s[:min(len(s), 24)]
}

// Load returns the profile of key k if it is valid for a link with these caps.
// Errors wrap ErrNoProfile, ErrStale or ErrProfile, or are the system's.
func (s *Store) Load(k Key, caps fabric.Caps) (*Profile, error) {
	path := s.Path(k)
	b, err := readRegular(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s", ErrNoProfile, path)
	}
	if err != nil {
		return nil, fmt.Errorf("saved profile: %w", err)
	}
	p, err := ParseProfile(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	limit := s.maxAge()
	switch age := s.clock().Sub(p.Made); {
	case p.Key != k:
		err = fmt.Errorf("%w: it belongs to %+v", ErrStale, p.Key)
	case p.Caps != capsOf(caps):
		err = fmt.Errorf("%w: the link has changed: %+v, was %+v", ErrStale, capsOf(caps), p.Caps)
	case age > limit:
		err = fmt.Errorf("%w: it is %v old", ErrStale, age.Round(time.Second))
	case age < -time.Hour:
		err = fmt.Errorf("%w: its time of %v lies in the future", ErrStale, p.Made)
	default:
		return p, nil
	}
	return nil, fmt.Errorf("%s: %w", path, err)
}

// readRegular reads a file that is not larger than a profile may be and not a pipe, on
// which reading would block.
func readRegular(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|nonblock, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() || st.Size() > maxProfile {
		return nil, fmt.Errorf("%w: %s is not a file of at most %d bytes", ErrProfile, path, maxProfile)
	}
	return io.ReadAll(io.LimitReader(f, maxProfile+1))
}

// Save writes p under its key, completely or not at all.
func (s *Store) Save(p *Profile) error {
	b, err := p.Marshal()
	if err != nil {
		return fmt.Errorf("save profile: %w", err)
	}
	if err := s.write(s.Path(p.Key), b); err != nil {
		return fmt.Errorf("save profile: %w", err)
	}
	return nil
}

func (s *Store) clock() time.Time {
	if s.now != nil {
		return s.now()
	}
	return time.Now()
}

func (s *Store) maxAge() time.Duration {
	if s.MaxAge == 0 {
		return DefaultMaxAge
	}
	return s.MaxAge
}

// Retire moves the profile of key k aside, so that the next start measures: it is called if
// the program finds while it runs that the profile no longer describes the link
// (logp.Learned.Drift). The old content stays beside it, in a file whose name ends in
// ".drifted", for inspection. It is no error if there is no profile.
func (s *Store) Retire(k Key) error {
	path := s.Path(k)
	if err := os.Rename(path, path+".drifted"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("retire profile: %w", err)
	}
	return nil
}
