package sampling

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/klauspost/cpuid/v2"

	"github.com/seed33544411/rma/internal/bulk"
	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/topo"
)

// CopiesBudget bounds the measuring time of Copies: enough for blocks of 4 MiB at 5 GB/s.
// Larger ones keep the values derived from the caches.
const CopiesBudget = 25 * time.Millisecond

// copiesKey identifies the conditions of a measurement of copies: a copy depends on the
// processor, its caches and the distance to the reader, and not on the link.
type copiesKey struct {
	Processor string    `json:"processor"`
	Kernel    string    `json:"kernel"`
	Base      bulk.Plan `json:"base"`
	Class     Class     `json:"class"`
	Version   string    `json:"version"`
}

// copiesVersion is the version of the measurement's meaning.
const copiesVersion = "copies-1"

type copiesFile struct {
	Key      copiesKey     `json:"key"`
	Made     time.Time     `json:"made"`
	Measured bulk.Measured `json:"measured"`
}

// maxCopies bounds the size of such a file: ten points of 100 bytes.
const maxCopies = 16 << 10

// Copies returns the sizes from which this host copies large blocks by each method, for a
// link that supports it (fabric.CopyTuner) and a peer of that class: saved ones from the
// store, or measured now within the budget and saved. source is "profile" or "measured".
// store may be nil. The error is the reason why nothing was saved or measured; in the
// latter case source is "caches", and the plan derived from these.
func Copies(store *Store, class Class, mode Mode, budget time.Duration) (m bulk.Measured, source string, err error) {
	base := bulk.Default(topo.Local(), cpu.Allowed(), 2)
	m.Plan = base
	if mode == Off {
		return m, "caches", nil
	}
	key := copiesKey{cpuid.CPU.BrandName, bulk.Kernel(), base, class, copiesVersion}
	if store != nil && mode != Force {
		if m, err := store.loadCopies(&key); err == nil {
			return m, "profile", nil
		}
		// Missing, old or broken: measured again, and replaced.
	}
	if m, err = bulk.Measure(base, budget); err != nil {
		return m, "caches", err
	}
	if store != nil && len(m.Points) > 0 {
		err = store.saveCopies(&key, &m)
	}
	return m, "measured", err
}

func (s *Store) copiesPath(k *copiesKey) string {
	return filepath.Join(s.Dir, "copies-"+plain(string(k.Class))+"-"+plain(k.Processor)+".json")
}

// loadCopies returns the values saved for exactly this key. Errors are as those of Load.
func (s *Store) loadCopies(k *copiesKey) (m bulk.Measured, err error) {
	path := s.copiesPath(k)
	b, err := readRegular(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return m, fmt.Errorf("%w: %s", ErrNoProfile, path)
	case err != nil:
		return m, fmt.Errorf("saved copies: %w", err)
	case len(b) > maxCopies:
		return m, fmt.Errorf("%s: %w: %d bytes", path, ErrProfile, len(b))
	}
	var f copiesFile
	if err := json.Unmarshal(b, &f); err != nil {
		return m, fmt.Errorf("%s: %w: %w", path, ErrProfile, err)
	}
	age := s.clock().Sub(f.Made)
	switch p := &f.Measured.Plan; {
	case f.Key != *k:
		return m, fmt.Errorf("%s: %w: of another host or placement", path, ErrStale)
	case age > s.maxAge() || age < -time.Hour:
		return m, fmt.Errorf("%s: %w: it is %v old", path, ErrStale, age.Round(time.Second))
	case p.Stream < bulk.MinStream || p.String < bulk.MinString:
		return m, fmt.Errorf("%s: %w: %+v", path, ErrProfile, *p)
	}
	return f.Measured, nil
}

// saveCopies writes m completely or not at all.
func (s *Store) saveCopies(k *copiesKey, m *bulk.Measured) error {
	b, err := json.Marshal(copiesFile{*k, s.clock(), *m})
	if err == nil {
		err = s.write(s.copiesPath(k), append(b, '\n'))
	}
	if err != nil {
		return fmt.Errorf("save copies: %w", err)
	}
	return nil
}

// write makes a file appear completely or not at all. It does not call fsync: after a crash
// of the machine a torn file is refused and measured again, and fsync may take longer than
// measuring.
func (s *Store) write(path string, b []byte) (err error) {
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(s.Dir, ".plogp-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, err = f.Write(b)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
