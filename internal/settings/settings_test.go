package settings

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// write makes a settings file.
func write(t *testing.T, lines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rma.conf")
	require.NoError(t, os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600))
	return path
}

func TestTheLaterSourceWins(t *testing.T) {
	t.Parallel()
	path := write(t, "fabric = tcp", "depth = 32", "mode = eager")
	for _, c := range []struct {
		name, env string
		src       Source
		text      string
		origin    Origin
		at        string
	}{
		{"nothing said", "RMA_FABRIC", Source{Environ: []string{}}, "auto", Default, ""},
		{"code over default", "RMA_FABRIC", Source{Environ: []string{}, Fields: map[string]string{"RMA_FABRIC": "shm"}}, "shm", Code, "Config.Fabric"},
		{"named over default", "RMA_DISABLE_CMA", Source{Environ: []string{}, Named: map[string]string{"disable_cma": "yes"}}, "yes", Code, `Config.Settings["disable_cma"]`},
		{"named over field", "RMA_FABRIC", Source{Environ: []string{}, Fields: map[string]string{"RMA_FABRIC": "shm"}, Named: map[string]string{"fabric": "tcp"}}, "tcp", Code, `Config.Settings["fabric"]`},
		{"file over code", "RMA_FABRIC", Source{Environ: []string{}, Fields: map[string]string{"RMA_FABRIC": "shm", "RMA_CONFIG": path}}, "tcp", File, path + ":1"},
		{"env over file", "RMA_FABRIC", Source{Environ: []string{"RMA_FABRIC=verbs", "RMA_CONFIG=" + path}}, "verbs", Env, "RMA_FABRIC"},
		{"the variable's file over code's", "RMA_DEPTH", Source{Environ: []string{"RMA_CONFIG=" + path}, Fields: map[string]string{"RMA_CONFIG": "/does/not/exist"}}, "32", File, path + ":2"},
		{"an empty variable is none", "RMA_FABRIC", Source{Environ: []string{"RMA_FABRIC="}}, "auto", Default, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			v, err := Load(c.src)
			require.NoError(t, err)
			x := v.Get(c.env)
			require.Equal(t, c.text, x.Text)
			require.Equal(t, c.origin, x.Origin)
			require.Equal(t, c.at, x.At)
		})
	}
}

func TestValues(t *testing.T) {
	t.Parallel()
	v, err := Load(Source{Environ: []string{
		"RMA_DEPTH=64", "RMA_PEER_TIMEOUT=1m30s", "RMA_TIMEOUT=-1s", "RMA_TCP_BIND=::1", "RMA_IBV_GID_INDEX=0", "RMA_IBV_LAST_BYTE=off",
		"RMA_TOKEN=c0ffee", "OTHER=1", "RMA_", "garbage",
	}})
	require.NoError(t, err)
	require.EqualValues(t, 64, v.Int("RMA_DEPTH"))
	require.Equal(t, 90*time.Second, v.Duration("RMA_PEER_TIMEOUT"))
	require.Equal(t, -time.Second, v.Duration("RMA_TIMEOUT"))
	require.Equal(t, netip.MustParseAddr("::1"), v.Addr("RMA_TCP_BIND"))
	require.Equal(t, "0", v.Text("RMA_IBV_GID_INDEX"), "0 is a value, not nothing")
	on, set := v.Switch("RMA_IBV_LAST_BYTE")
	require.True(t, set && !on)
	_, set = v.Switch("RMA_IBV_GUARD")
	require.False(t, set)
	require.Equal(t, "(secret)", v.Get("RMA_TOKEN").Shown())
	require.Equal(t, "(the first usable one)", v.Get("RMA_IBV_DEVICE").Shown())
	require.Len(t, v.All(), len(All()))
	require.Panics(t, func() { v.Get("RMA_NO_SUCH") })
}

func TestEverythingWrongIsSaidAtOnce(t *testing.T) {
	t.Parallel()
	path := write(t, "# comment", "fabrik = tcp", "depth = 7 # too few", "what is this", `mode = "eager`, "depth = 32", "mode =", "rank = 3", "RMA_FABRIC = tcp", "FABRIC = tcp")
	_, err := Load(Source{
		Environ: []string{"RMA_CONFIG=" + path, "RMA_PEER_TIMEOUT=2", "RMA_MODE=fast", "RMA_STRICT=1", "RMA_FABRICS=tcp"},
		Fields:  map[string]string{"RMA_DEPTH": "70000"},
		Named:   map[string]string{"guard": "1"},
	})
	require.Error(t, err)
	want := []string{
		"Config.Depth = 70000: want a number of requests, 16 … 65536",
		`Config.Settings["guard"]: unknown setting "guard": did you mean ibv_guard?`,
		path + `:4: "what is this": want name = value`,
		path + `:5: mode: a value in quotes must end with " and be written as a Go string`,
		path + `:6: depth was set in line 3 already`,
		path + `:7: mode: no value; delete the line to get the default`,
		path + `:2: unknown setting "fabrik": did you mean fabric?`,
		path + `:3: depth = 7: want a number of requests, 16 … 65536`,
		path + `:8: rank can only be set by the variable RMA_RANK`,
		path + `:9: unknown setting "RMA_FABRIC": did you mean fabric?`,
		path + `:10: unknown setting "FABRIC": did you mean fabric?`,
		`RMA_MODE="fast": want auto, eager, gather or scatter`,
		`RMA_PEER_TIMEOUT="2": want a duration, such as 50ms or 2s, at least 1ms`,
		`RMA_FABRICS: unknown variable: did you mean RMA_FABRIC?`,
	}
	require.Equal(t, "14 settings are wrong:\n\t"+strings.Join(want, "\n\t"), err.Error())
	require.ErrorIs(t, err, ErrInvalid)
	require.ErrorIs(t, err, ErrUnknown)
	var one *Error
	require.True(t, errors.As(err, &one))
	require.Equal(t, "Config.Depth = 70000", one.At)
}

func TestUnknownVariables(t *testing.T) {
	t.Parallel()
	environ := []string{
		"RMA_FABIRC=tcp", "RMA_SHM_DISABLE_CMA=1", "RMA_DISABLE=1", "RMA_BIND=1.2.3.4", "RMA_ZZZZZZZZ=1",
		"RMA_SERVICE_HOST=10.0.0.1", "RMA_SERVICE_PORT=80", "RMA_SERVICE_PORT_HTTP=80", "RMA_PORT=tcp://10.0.0.1:80", "RMA_PORT_80_TCP_ADDR=10.0.0.1",
		"RMA_HEAD_SERVICE_HOST=10.0.0.1", "RMA_TEST_WHATEVER=1",
	}
	v, err := Load(Source{Environ: environ})
	require.NoError(t, err, "a warning unless strict")
	require.Equal(t, strings.Join([]string{
		"5 settings are wrong:",
		"RMA_BIND: unknown variable: did you mean RMA_TCP_BIND?",
		"RMA_DISABLE: unknown variable: did you mean RMA_DISABLE_CMA?",
		"RMA_FABIRC: unknown variable: did you mean RMA_FABRIC?",
		"RMA_SHM_DISABLE_CMA: unknown variable: did you mean RMA_DISABLE_CMA?",
		"RMA_ZZZZZZZZ: unknown variable",
	}, "\n\t"), v.Unknown.Error())
	_, err = Load(Source{Environ: append(environ, "RMA_STRICT=1")})
	require.ErrorIs(t, err, ErrUnknown)
}

func TestTheJobIsJudgedByWhoReadsIt(t *testing.T) {
	t.Parallel()
	v, err := Load(Source{Environ: []string{"RMA_RANK=five", "RMA_REQUIRE_RDMA=maybe"}})
	require.NoError(t, err)
	require.Equal(t, "five", v.Text("RMA_RANK"))
}

func TestFileThatIsNotThere(t *testing.T) {
	t.Parallel()
	_, err := Load(Source{Environ: []string{"RMA_CONFIG=/does/not/exist"}})
	require.ErrorIs(t, err, ErrFile)
	require.EqualError(t, err, "RMA_CONFIG: settings file /does/not/exist: no such file or directory")
	_, err = Load(Source{Environ: []string{}, Fields: map[string]string{"RMA_CONFIG": write(t, strings.Repeat("#\n", maxFile))}})
	require.ErrorContains(t, err, "larger than 256 KiB")
}

func TestFileSyntax(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"a=b":                      "b",
		"\ufeffa = b\r\n":          "b",
		"  a\t=\tb c \t# comment":  "b c",
		"a = b#c":                  "b#c",
		"a = x=y":                  "x=y",
		`a = "b # c" # d`:          "b # c",
		`a = " \t\"quoted\" \n "`:  " \t\"quoted\" \n ",
		"\n# x = y\n\na = b\n#end": "b",
	} {
		as, es := parseFile("f", text)
		require.Empty(t, es, "%q", text)
		require.Len(t, as, 1, "%q", text)
		require.Equal(t, "a", as[0].name)
		require.Equal(t, want, as[0].value, "%q", text)
	}
	for _, text := range []string{"a", "=b", "a =", "a = # b", `a = "`, `a = "b" c`, `a = ""`, "a = \xff", "a = \x00", "a = b\na = c"} {
		_, es := parseFile("f", text)
		require.Len(t, es, 1, "%q", text)
	}
}

// Values as they are written, and what does not fit.
func TestTypes(t *testing.T) {
	t.Parallel()
	size := Type{Kind: Bytes, Min: 1 << 10, Max: 1 << 30}
	for text, want := range map[string]int64{"1024": 1 << 10, "64K": 1 << 16, "64KiB": 1 << 16, "64k": 1 << 16, "1M": 1 << 20, "1G": 1 << 30} {
		p, err := size.parse(text)
		require.NoError(t, err, text)
		require.Equal(t, want, p.n, text)
	}
	for _, text := range []string{"", "1", "2G", "K", "5iB", "1q", "1 K", "99999999999999G", "-1K", "1.5K"} {
		_, err := size.parse(text)
		require.Error(t, err, text)
	}
	require.Equal(t, "bytes, such as 64K or 1M, 1K … 1G", size.Want())
	for text, want := range map[string]int64{"1": 1, "true": 1, "on": 1, "YES": 1, "0": 0, "False": 0, "no": 0, "off": 0} {
		p, err := (&Type{Kind: Switch}).parse(text)
		require.NoError(t, err, text)
		require.Equal(t, want, p.n, text)
	}
	for kind, bad := range map[Kind][]string{
		Switch: {"2", "maybe"}, Count: {"-1", "1.0", "one", "9223372036854775808"}, Duration: {"5", "-1s", "x"},
		Address: {"host", "1.2.3.4:80"}, Secret: {"abc", "zz"}, Enum: {"", "A"},
	} {
		for _, text := range bad {
			_, err := (&Type{Kind: kind, Values: []string{"a"}}).parse(text)
			require.Error(t, err, "%v %q", kind, text)
		}
	}
	_, err := (&Type{Kind: Secret}).parse("zz")
	require.NotContains(t, err.Error(), "zz", "secrets are not repeated")
}

func TestDistance(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		d    int
	}{{"", "", 0}, {"", "abc", 3}, {"abc", "abc", 0}, {"fabirc", "fabric", 1}, {"fabrik", "fabric", 1}, {"kitten", "sitting", 3}, {"mode", "moode", 1}} {
		require.Equal(t, c.d, distance(c.a, c.b), "%s %s", c.a, c.b)
		require.Equal(t, c.d, distance(c.b, c.a), "%s %s", c.b, c.a)
	}
}
