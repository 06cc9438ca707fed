package links

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed33544411/rma/fabric"
	"github.com/seed33544411/rma/internal/cpu"
	"github.com/seed33544411/rma/internal/settings"
)

func TestNames(t *testing.T) {
	for in, want := range map[string]string{"": "", "auto": "", "shm": "shm", "tcp": "tcp", "ibv": "ibv", "verbs": "ibv"} {
		got, err := Canonical(in)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	_, err := Canonical("pigeon")
	require.ErrorIs(t, err, ErrUnknown)
	require.EqualError(t, err, `links: unknown link "pigeon": want shm, ibv, tcp, verbs or auto`)
	_, err = Open("", Options{})
	require.ErrorIs(t, err, ErrUnknown)
}

func TestProbeTellsAllWithReasons(t *testing.T) {
	all := Probe(Options{})
	require.Len(t, all, len(registry))
	for i, s := range all {
		require.Equal(t, registry[i].name, s.Name)
		require.Equal(t, s.Usable, s.Reason == nil)
		if !s.Usable {
			require.ErrorIs(t, s.Reason, fabric.ErrNotSupported, s.Name)
		}
	}
}

func TestChoose(t *testing.T) {
	all := Names()
	for _, c := range []struct {
		a, b   Offer
		forced string
		want   string
	}{
		{Offer{Host: "x", Links: all}, Offer{Host: "x", Links: all}, "", "shm"},
		{Offer{Host: "x", Links: all}, Offer{Host: "y", Links: all}, "", "ibv"},
		{Offer{Host: "x", Links: all}, Offer{Host: "x", Links: []string{"tcp", "ibv"}}, "", "ibv"},
		{Offer{Host: "x", Links: all}, Offer{Host: "y", Links: []string{"tcp"}}, "", "tcp"},
		{Offer{Host: "x", Links: []string{"shm", "tcp"}}, Offer{Host: "y", Links: []string{"tcp", "shm"}}, "", "tcp"},
		{Offer{Host: "x", Links: all}, Offer{Host: "x", Links: all}, "tcp", "tcp"},
		{Offer{Host: "x", Links: all}, Offer{Host: "x", Links: all}, "verbs", "ibv"},
		{Offer{Host: "x", Links: all}, Offer{Host: "y", Links: all}, "shm", ""},
		{Offer{Host: "x", Links: all}, Offer{Host: "y", Links: nil}, "", ""},
		{Offer{Host: "x", Links: []string{"warp"}}, Offer{Host: "x", Links: []string{"warp"}}, "", ""},
	} {
		got, err := Choose(c.a, c.b, c.forced)
		back, _ := Choose(c.b, c.a, c.forced)
		require.Equal(t, c.want, got)
		require.Equal(t, got, back, "both sides choose alike")
		if c.want == "" {
			require.ErrorIs(t, err, ErrNoLink)
		} else {
			require.NoError(t, err)
		}
	}
}

// The refusal says what it is that differs.
func TestNoLinkSaysWhy(t *testing.T) {
	me := Offer{Host: "boot/net:[1]/1000", Links: []string{"shm"}}
	for host, want := range map[string]string{
		me.Host: "tcp wanted on one host;", "other/net:[1]/1000": "on different hosts",
		"boot/net:[2]/1000": "different network namespaces", "boot/net:[1]/1001": "different users (uid 1000 and 1001)",
	} {
		forced := "shm"
		if host == me.Host {
			forced = "tcp"
		}
		_, err := Choose(me, Offer{Host: host, Links: me.Links}, forced)
		require.ErrorIs(t, err, ErrNoLink)
		require.ErrorContains(t, err, want)
	}
}

func TestOffer(t *testing.T) {
	o := NewOffer([]string{"shm", "tcp"})
	require.NotEmpty(t, o.Host)
	got, err := ParseOffer(o.Append(nil))
	require.NoError(t, err)
	require.Equal(t, o, got)
	got, err = ParseOffer([]byte("h\x00"))
	require.NoError(t, err)
	require.Equal(t, Offer{Host: "h"}, got)
	got, err = ParseOffer([]byte("h\x00cpus:0-1+8,tcp"))
	require.NoError(t, err)
	require.Equal(t, Offer{Host: "h", Links: []string{"tcp"}, CPUs: cpu.Of(0, 1, 8)}, got)
	var all cpu.Set // a list that is too long is omitted
	for i := 0; i < 1000; i += 2 {
		all = all.Or(cpu.Of(i))
	}
	got, err = ParseOffer(Offer{Host: "h", Links: []string{"tcp"}, CPUs: all}.Append(nil))
	require.NoError(t, err)
	require.Equal(t, Offer{Host: "h", Links: []string{"tcp"}}, got)
	for _, bad := range []string{"", "host only", "h\x00cpus:3-1", "h\x00tcp,cpus:x", "h\x00a\x00b", "h\x00" + strings.Repeat("x", MaxOffer)} {
		_, err := ParseOffer([]byte(bad))
		require.ErrorIs(t, err, ErrBadOffer)
	}
}

func FuzzParseOffer(f *testing.F) {
	f.Add([]byte("h\x00shm,tcp"))
	f.Add([]byte("\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		o, err := ParseOffer(b)
		if err != nil {
			require.ErrorIs(t, err, ErrBadOffer)
			return
		}
		again, err := ParseOffer(o.Append(nil))
		require.NoError(t, err)
		require.Equal(t, o, again)
		_, _ = Choose(o, o, "")
	})
}

func TestEnvironment(t *testing.T) {
	from := func(o Options, env map[string]string) (string, Options, error) {
		list := []string{}
		for k, v := range env {
			list = append(list, k+"="+v)
		}
		v, err := settings.Load(settings.Source{Environ: list})
		forced, o := FromSettings(v, o)
		return forced, o, err
	}
	five := 5
	forced, o, err := from(Options{Device: "kept", Port: 2, GIDIndex: &five}, nil)
	require.NoError(t, err)
	require.Empty(t, forced)
	require.Equal(t, Options{Device: "kept", Port: 2, GIDIndex: &five}, o)
	zero, no := 0, false
	forced, o, err = from(Options{}, map[string]string{
		EnvFabric: "verbs", EnvDisableCMA: "1", EnvDisableSegments: "true", EnvBind: "0.0.0.0",
		EnvCopyStream: "3M", EnvCopyString: "-1",
		EnvDevice: "rxe1", EnvPort: "1", EnvGIDIndex: "0", EnvLastByte: "0", EnvGuard: "0",
	})
	require.NoError(t, err)
	require.Equal(t, "ibv", forced)
	require.Equal(t, Options{
		DisableCMA: true, DisableSegments: true, StreamFrom: 3 << 20, StringFrom: -1, Bind: netip.IPv4Unspecified(), Device: "rxe1", Port: 1, GIDIndex: &zero, LastByteLast: &no, Guard: &no,
	}, o)
	for k, v := range map[string]string{
		EnvFabric: "x", EnvDisableCMA: "maybe", EnvDisableSegments: "2", EnvBind: "here", EnvPort: "0", EnvGIDIndex: "-1", EnvLastByte: "never", EnvGuard: "maybe",
		EnvCopyStream: "1", EnvCopyString: "much",
	} {
		_, _, err := from(Options{}, map[string]string{k: v})
		require.ErrorIs(t, err, ErrEnvironment, k)
		require.ErrorContains(t, err, k)
	}
	t.Setenv(EnvFabric, "x")
	_, _, err = FromEnv(Options{})
	require.ErrorIs(t, err, ErrEnvironment)
}

// What a user may say is what there is.
func TestSettingsNameTheLinks(t *testing.T) {
	words := settings.Lookup(EnvFabric).Type.Values
	for _, w := range words {
		_, err := Canonical(w)
		require.NoError(t, err)
	}
	for _, n := range Names() {
		require.Contains(t, words, n)
	}
}

// Ranks that are told to be on different hosts share no memory.
func TestNamedHosts(t *testing.T) {
	offer := func(name string) Offer {
		v, err := settings.Load(settings.Source{Environ: []string{}, Named: map[string]string{"host": name}})
		require.NoError(t, err)
		_, o := FromSettings(v, Options{})
		return NewOffer([]string{"shm", "tcp"}).On(o.Host)
	}
	for _, c := range []struct{ a, b, link string }{{"", "", "shm"}, {"x", "x", "shm"}, {"x", "y", "tcp"}, {"", "x", "tcp"}} {
		got, err := Choose(offer(c.a), offer(c.b), "")
		require.NoError(t, err)
		require.Equal(t, c.link, got, "%q and %q", c.a, c.b)
	}
	_, err := Choose(offer("x"), offer("y"), "shm")
	require.ErrorContains(t, err, "on different hosts")
	long := offer(strings.Repeat("x", MaxOffer))
	parsed, err := ParseOffer(long.Append(nil))
	require.NoError(t, err)
	require.Equal(t, long.Host, parsed.Host)
}
