package rma

import (
	"bytes"
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/links"
	"github.com/seed33544411/rma/internal/message"
	"github.com/seed33544411/rma/internal/settings"
	"github.com/seed33544411/rma/internal/wireup"
	"github.com/seed33544411/rma/logp"
	"github.com/seed33544411/rma/sampling"
)

// clean removes the settings of the tests' environment.
func clean(t *testing.T) {
	t.Helper()
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(kv, "="); strings.HasPrefix(name, settings.Prefix) {
			t.Setenv(name, "")
		}
	}
}

func TestConfigDefaults(t *testing.T) {
	clean(t)
	var nobody *Config
	for _, c := range []*Config{nobody, {}} {
		d, _, w, err := c.effective()
		require.NoError(t, err)
		require.Equal(t, fabric.DefaultDepth, d.Depth)
		require.Equal(t, 1<<18, d.Outstanding)
		require.Equal(t, fabric.DefaultPeerTimeout, d.PeerTimeout)
		require.Equal(t, message.DefaultPinned, d.PinnedLimit)
		require.Equal(t, 16, d.Adverts)
		require.Equal(t, message.DefaultLearn, d.Learn)
		require.Equal(t, wireup.DefaultTimeout, d.SetupTimeout)
		require.Equal(t, wireup.DefaultTimeout, w.Timeout)
		require.Equal(t, SamplingCached, d.Sampling)
		require.Equal(t, sampling.DefaultBudget, d.SamplingBudget)
		require.Equal(t, 5*time.Second, d.PathBudget)
		require.Equal(t, 32<<20, d.PathBytes)
		require.Equal(t, ModeAuto, d.Mode)
		require.Equal(t, PiecesAuto, d.Pieces)
		require.Empty(t, d.Fabric)
		require.False(t, d.Bind.IsValid())
		require.NotNil(t, d.Logger)
		require.False(t, d.Logger.Enabled(t.Context(), slog.LevelError))
		require.Equal(t, 1, w.Size)
	}
}

// Every setting with a field sets it, from the environment and from a file; the program's
// value remains where neither sets it.
func TestConfigSources(t *testing.T) {
	clean(t)
	code := Config{
		Fabric: "shm", Bind: netip.MustParseAddr("10.0.0.1"), Device: "a", Rails: "a", Mode: "eager", ModeTable: "*=gather", Pieces: "chain", Sampling: "off", SamplingBudget: time.Second, PathBudget: time.Second, PathBytes: 1 << 20,
		Learn: 7, Profiles: "/a", Depth: 32, Outstanding: 100, PinnedLimit: 1 << 20, RingMemory: 1 << 20, RingLimit: 1 << 18, Adverts: 3, Spin: 9, Yields: 8, PeerTimeout: time.Second, HangTimeout: time.Second, SetupTimeout: time.Second,
	}
	other := Config{
		Fabric: "ibv", Bind: netip.MustParseAddr("10.0.0.2"), Device: "b", Rails: "b", Mode: "gather", ModeTable: "tcp:4K=gather,*=scatter;2x64@1=eager", Pieces: "group", Sampling: "force", SamplingBudget: 20 * time.Millisecond, PathBudget: -1, PathBytes: 2 << 20,
		Learn: -1, Profiles: "/b", Depth: 64, Outstanding: -1, PinnedLimit: -1, RingMemory: 1 << 21, RingLimit: 1 << 19, Adverts: -1, Spin: -1, Yields: -1, PeerTimeout: 2 * time.Minute, HangTimeout: -1, SetupTimeout: -1,
	}
	same := func(want, got Config) {
		t.Helper()
		got.Logger, got.File, got.Settings = nil, "", nil
		require.Equal(t, want, got)
	}
	d, _, _, err := code.effective()
	require.NoError(t, err)
	same(code, d)

	var lines []string
	named := map[string]string{}
	for _, f := range other.fields() {
		if v := f.get(); v != "" {
			lines = append(lines, settings.Lookup(f.env).Name()+" = "+v)
			named[settings.Lookup(f.env).Name()] = v
		}
	}
	require.Len(t, lines, reflect.TypeFor[Config]().NumField()-4, "all but Job, File, Settings and Logger")
	c := code
	c.Settings = named
	d, _, _, err = c.effective()
	require.NoError(t, err)
	same(other, d)

	c = code
	c.File = filepath.Join(t.TempDir(), "rma.conf")
	require.NoError(t, os.WriteFile(c.File, []byte(strings.Join(lines, "\n")), 0o600))
	d, _, _, err = c.effective()
	require.NoError(t, err)
	same(other, d)

	for _, f := range other.fields() {
		if v := f.get(); v != "" {
			t.Setenv(f.env, v)
		}
	}
	d, _, w, err := code.effective()
	require.NoError(t, err)
	same(other, d)
	require.Negative(t, w.Timeout)
}

func TestConfigErrors(t *testing.T) {
	clean(t)
	t.Setenv("RMA_FABRICS", "tcp")
	t.Setenv("RMA_DEPTH", "many")
	t.Setenv("RMA_MODE_TABLE", "shm:1x4K=eager,64=eagre")
	t.Setenv("RMA_RANK", "1")
	_, err := Open(t.Context(), &Config{Depth: -1, Mode: "fast", PeerTimeout: -time.Second, Settings: map[string]string{"gid_index": "1", "strict": "1"}})
	require.ErrorIs(t, err, settings.ErrInvalid)
	require.ErrorIs(t, err, wireup.ErrEnvironment)
	require.ErrorIs(t, err, logp.ErrTable)
	for _, want := range []string{
		"Config.Depth = -1: want a number of requests, 16 … 65536",
		"Config.Mode = fast: want auto, eager, gather or scatter",
		"Config.PeerTimeout = -1s: want a duration",
		`unknown setting "gid_index": did you mean ibv_gid_index?`,
		`RMA_DEPTH="many": want a number`,
		"RMA_FABRICS: unknown variable: did you mean RMA_FABRIC?",
		`RMA_RANK="1": RMA_SIZE is not set: start the program by a launcher`,
		`RMA_MODE_TABLE="shm:1x4K=eager,64=eagre": row 2 of shm, "64=eagre": mode "eagre": want eager, gather, scatter`,
	} {
		require.ErrorContains(t, err, want)
	}
	t.Setenv("RMA_DEPTH", "")
	t.Setenv("RMA_MODE_TABLE", "")
	d, _, _, err := (&Config{Depth: 3, Job: &Job{Size: 1}}).effective()
	require.NoError(t, err, "whoever brings a job does not care for the environment's; unknown variables are a warning")
	require.Equal(t, minDepth, d.Depth)
}

func TestConfigIsLogged(t *testing.T) {
	clean(t)
	t.Setenv("RMA_FABRICS", "tcp")
	t.Setenv("RMA_DISABLE_CMA", "1")
	var b bytes.Buffer
	log := slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{Level: slog.LevelDebug}))
	eng, err := Open(t.Context(), &Config{Fabric: "shm", Logger: log})
	require.NoError(t, err)
	require.NoError(t, eng.Close())
	require.Contains(t, b.String(), `level=DEBUG msg="rma: setting" name=disable_cma value=1 origin=env at=RMA_DISABLE_CMA`)
	require.Contains(t, b.String(), `level=DEBUG msg="rma: setting" name=fabric value=shm origin=code at=Config.Fabric`)
	require.Contains(t, b.String(), `level=WARN msg="rma: unknown variable" name=RMA_FABRICS why="unknown variable: did you mean RMA_FABRIC?"`)
	require.NotContains(t, b.String(), "name=depth")
}

func TestLogVariable(t *testing.T) {
	clean(t)
	at := func(c *Config) slog.Level {
		d, _, _, err := c.effective()
		require.NoError(t, err)
		for _, l := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
			if d.Logger.Enabled(context.Background(), l) {
				return l
			}
		}
		return 99
	}
	for text, want := range map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError, "off": 99} {
		if text != "debug" { // which would log the settings themselves
			t.Setenv(envLog, text)
			require.Equal(t, want, at(nil), text)
		}
	}
	t.Setenv(envLog, "off")
	require.Equal(t, slog.LevelError, at(&Config{Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelError}))}))
}

// Fields, registry and documentation agree: every field of Config is a setting or one of a
// few that cannot be text; its comment names the variable.
func TestConfigIsDocumented(t *testing.T) {
	others := map[string]bool{"Job": true, "Settings": true, "Logger": true}
	declared := map[string]string{}
	for _, s := range settings.All() {
		if s.Field != "" {
			declared[s.Field] = s.Env
		}
	}
	bound := map[string]bool{}
	for _, f := range new(Config).fields() {
		require.NotNil(t, settings.Lookup(f.env), f.env)
		bound[f.env] = true
	}
	file, err := parser.ParseFile(token.NewFileSet(), "config.go", nil, parser.ParseComments)
	require.NoError(t, err)
	seen := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok || spec.Name.Name != "Config" {
			return true
		}
		for _, f := range spec.Type.(*ast.StructType).Fields.List {
			name := f.Names[0].Name
			seen[name] = true
			doc := strings.Join(strings.Fields(f.Doc.Text()), " ")
			require.NotEmpty(t, doc, "Config.%s has no comment", name)
			if others[name] {
				continue
			}
			env := declared[name]
			require.NotEmpty(t, env, "Config.%s is not in internal/settings", name)
			require.True(t, bound[env], "Config.%s: %s is not in Config.fields", name, env)
			require.Contains(t, doc, env+" overrides it", "Config.%s", name)
			require.Regexp(t, "Zero:|Empty:|Empty or ", doc, "Config.%s: what is its default?", name)
		}
		return false
	})
	require.Len(t, seen, reflect.TypeFor[Config]().NumField())
	for field, env := range declared {
		require.True(t, seen[field], "internal/settings says that %s has a field Config.%s", env, field)
	}
}

// The constants are the valid values of the settings of the same names, in code and in the
// environment.
func TestConfigConstants(t *testing.T) {
	accepted := func(c Config) *Config {
		d, _, _, err := c.effective()
		require.NoError(t, err)
		return &d
	}
	for _, f := range []Fabric{FabricAuto, FabricSHM, FabricTCP, FabricVerbs} {
		want, err := links.Canonical(string(f))
		require.NoError(t, err)
		require.EqualValues(t, want, accepted(Config{Fabric: f}).Fabric)
	}
	for _, m := range []Mode{ModeEager, ModeGather, ModeScatter} {
		p := accepted(Config{Mode: m, ModeTable: "*=gather"}).policy("shm")
		require.True(t, p.Forced)
		require.Equal(t, string(m), p.Mode.String())
	}
	require.False(t, accepted(Config{Mode: ModeAuto}).policy("shm").Forced)
	tables := accepted(Config{ModeTable: "verbs:*=gather;*=scatter"})
	require.Equal(t, logp.Policy{Table: []logp.Rule{{Mode: logp.Gather}}}, tables.policy("ibv"))
	require.Equal(t, logp.Policy{Table: []logp.Rule{{Mode: logp.Scatter}}}, tables.policy("tcp"))
	require.True(t, func() bool { p := accepted(Config{}).policy("shm"); return p.Free() }())
	for _, w := range []Pieces{PiecesChain, PiecesGroup} {
		forced, way := (&Config{Pieces: w}).pieces()
		require.True(t, forced)
		require.Equal(t, string(w), way.String())
	}
	forced, _ := accepted(Config{Pieces: PiecesAuto}).pieces()
	require.False(t, forced)
	for _, s := range []Sampling{SamplingCached, SamplingForce, SamplingOff} {
		require.Equal(t, s, accepted(Config{Sampling: s}).Sampling)
	}
	d := accepted(Config{Fabric: "shm", Mode: "eager", Sampling: "off"}) // literals will do
	require.Equal(t, FabricSHM, d.Fabric)
}
