package sampling

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/bulk"
	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/topo"
)

// Measured once, then taken from the file; of another class, or forced, measured again.
func TestCopiesAreKept(t *testing.T) {
	t.Parallel()
	store := &Store{Dir: t.TempDir()}
	m, source, err := Copies(store, SharedL3, Cached, time.Minute)
	require.NoError(t, err)
	require.Equal(t, "measured", source)
	require.NotEmpty(t, m.Points)

	again, source, err := Copies(store, SharedL3, Cached, 0)
	require.NoError(t, err)
	require.Equal(t, "profile", source)
	require.Equal(t, m, again)

	_, source, err = Copies(store, Sockets, Cached, 0)
	require.NoError(t, err)
	require.Equal(t, "measured", source, "figures of one class are not used for another")
	files, err := filepath.Glob(filepath.Join(store.Dir, "*"))
	require.NoError(t, err)
	require.Len(t, files, 1, "what came to nothing is not kept")

	_, source, err = Copies(store, SharedL3, Force, 0)
	require.NoError(t, err)
	require.Equal(t, "measured", source)

	m, source, err = Copies(store, SharedL3, Off, time.Minute)
	require.NoError(t, err)
	require.Equal(t, "caches", source)
	require.Equal(t, bulk.Default(topo.Local(), cpu.Allowed(), 2), m.Plan)

	_, source, err = Copies(nil, SharedL3, Cached, 0)
	require.NoError(t, err)
	require.Equal(t, "measured", source)
}

func TestCopiesFilesThatAreNoGood(t *testing.T) {
	t.Parallel()
	now := time.Now()
	store := &Store{Dir: t.TempDir(), now: func() time.Time { return now }}
	key := copiesKey{Processor: "a processor", Kernel: "avx2", Class: SharedL2, Version: copiesVersion}
	m := bulk.Measured{Plan: bulk.Plan{String: bulk.Never, Stream: 1 << 20}, Points: []bulk.Point{{Size: 1 << 20}}}
	require.NoError(t, store.saveCopies(&key, &m))
	got, err := store.loadCopies(&key)
	require.NoError(t, err)
	require.Equal(t, m, got)

	other := key
	other.Version = "copies-0"
	_, err = store.loadCopies(&other)
	require.ErrorIs(t, err, ErrStale)
	other = key
	other.Class = Sockets
	_, err = store.loadCopies(&other)
	require.ErrorIs(t, err, ErrNoProfile)

	now = now.Add(DefaultMaxAge + time.Hour)
	_, err = store.loadCopies(&key)
	require.ErrorIs(t, err, ErrStale)
	now = now.Add(-2 * DefaultMaxAge)
	_, err = store.loadCopies(&key)
	require.ErrorIs(t, err, ErrStale)

	now = time.Now()
	path := store.copiesPath(&key)
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	for name, b := range map[string][]byte{
		"torn":      whole[:len(whole)/2],
		"empty":     {},
		"huge":      append(bytes.Clone(whole), bytes.Repeat([]byte(" "), maxCopies)...),
		"low":       bytes.Replace(whole, []byte(`"Stream":1048576`), []byte(`"Stream":7`), 1),
		"no number": bytes.Replace(whole, []byte(`"Stream":1048576`), []byte(`"Stream":-1`), 1),
	} {
		require.NotEqual(t, whole, b, name)
		require.NoError(t, os.WriteFile(path, b, 0o600))
		_, err = store.loadCopies(&key)
		require.ErrorIs(t, err, ErrProfile, name)
	}
	store.Dir = filepath.Join(path, "not a directory")
	require.Error(t, store.saveCopies(&key, &m))
}

// neighbour is an endpoint that knows how near its peer is.
type neighbour struct {
	fabric.Endpoint
	class string
}

func (n neighbour) Near() fabric.Vicinity { return fabric.Vicinity{Class: n.class} }

func TestClassOf(t *testing.T) {
	t.Parallel()
	for near, want := range map[topo.Near]Class{
		topo.Unknown: SameHost, topo.Core: OneCore, topo.L2: SharedL2, topo.L3: SharedL3, topo.Socket: OneSocket, topo.Far: Sockets,
	} {
		c := ClassOf(neighbour{class: near.String()}, true)
		require.Equal(t, want, c)
		require.NoError(t, Key{Class: c}.validate())
		require.Equal(t, Remote, ClassOf(neighbour{class: near.String()}, false))
	}
	require.Equal(t, SameHost, ClassOf(neighbour{class: "next door"}, true))
	require.Equal(t, SameHost, ClassOf(nil, true))
	require.Error(t, Key{Class: "host-door"}.validate())

	// Files of different classes have different names.
	store, seen := &Store{Dir: "d"}, map[string]bool{}
	for _, c := range nearClass {
		p := store.Path(Key{Link: "shm", Class: c, Version: Version})
		require.False(t, seen[p])
		seen[p] = true
	}
}
